// Context groups that serve a queue of requests, alone or with generation groups behind them,
// simulated.
#pragma once

#include <cstdint>
#include <string>

#include "job/traffic/latency.h"
#include "repro/dwdp/context_steps.h"

namespace forebay::repro {

// DeepSeek-R1 in NVFP4 on gb200-nvl72; rows go to experts in NVFP4 and come back as sums.
struct Serving {
  std::string device = "gb200-nvl72", model = "DeepSeek-R1-NVFP4";
  bool ships = false;         // context ranks: DEP; else DWDP
  int groups = 1, ranks = 4;  // context groups, and the ranks of each
  int generation = 0;         // ranks of the one generation group; 0: first tokens alone
  // How answers are generated, by the generation group or, without one, by all ranks: cut over so
  // many (1: DEP); and with how many drafts a choice and step (multi-token prediction), of which
  // those kept and its own token are `tokens_a_step`. A draft costs a row that sees the choice's
  // prompt, as a further choice of the request does, and one more layer of the model, of a mixture
  // one with experts, through which prompts and answers go; not the layer's own head and the
  // projection before it.
  int tp = 1, drafts = 0;
  double tokens_a_step = 1;
  int32_t prompt = 8192;  // tokens of the longest
  double ratio = 1;       // the shortest prompt by the longest
  // Above 0, in place of `ratio`: deviation of normal lengths, of which `prompt` is the mean.
  double deviation = 0;
  int32_t rows = 32768;  // a context rank's step has at most
  int32_t output = 1;
  int32_t batch = 0;        // answers of a rank that generates at most; 0: any number
  int64_t requests = 0;     // in all
  int64_t concurrency = 0;  // requests between their arrival and their end; 0: any number
  double rate = 0;          // requests a second, of a Poisson process; 0: all at once
  double seconds = 0;       // after which the run is broken off; 0: it comes to its end
  std::string routing = "power:1.2";
  bool uncalibrated = false;
  bool fp8_kv = false;       // the KV cache in fp8; else in bf16
  bool by_category = false;  // `times` of the result has its parts,
  bool alone = false;        // and these are what kernels take without copies beside them

  int context_ranks() const { return groups * ranks; }
  int rows_a_choice() const { return 1 + drafts; }
  // Rows of a step that decodes all the answers that a replica may have.
  int64_t batch_rows() const { return int64_t{batch} * tp * rows_a_choice(); }
};

struct Served {
  double seconds = 0;               // the run takes
  double context_tokens_per_s = 0;  // a context rank reads, in the window
  double output_tokens_per_s = 0;   // all generation ranks write, in the window
  double tokens_per_s_user = 0;     // in the window: of an answer that is generated
  double batch = 0;                 // answers in a generation rank's step, in the window
  double decoding_seconds = 0;      // a step that decodes some `batch` answers and reads no prompt
  job::Latencies latencies;         // requests' that came to their end
  ContextTimes times;  // a context step's; but for by_category its time and waits alone
};

// The window: job::SteadyWindowOf.
base::Result<Served> RunServing(const Serving& serving, Lab& lab);

}  // namespace forebay::repro
