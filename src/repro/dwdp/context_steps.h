// Steps of prompts alone, simulated: experts pulled (DWDP), or rows shipped to them (DEP).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "repro/claim.h"
#include "repro/lab.h"

namespace forebay::repro {

// The part of a device's memory that is used, so that three ranks hold all experts.
inline constexpr double kUtilization = 0.98;
// What lengths, arrivals and routing are drawn from.
inline constexpr uint64_t kSeed = 17;
// Routing less skewed than that of verdicts, for accounts.
inline constexpr const char* kLessSkewed[] = {"power:1.01", "balanced"};

struct ContextSteps {
  std::string device = "gb200-nvl72", model = "DeepSeek-R1-NVFP4", routing = "power:1.2";
  int ranks = 4;
  schedule::WantedMode mode = StepMode{.ffn = FfnMode::kPull};
  int64_t prompt = 8192;  // tokens of the longest
  double ratio = 0.8;     // the shortest prompt by the longest
  int64_t rows = 32768;   // a rank's step has at most
  // Above 0, in place of `ratio`: deviation of the ranks' lengths, by their mean, each rank's being
  // alike.
  double rank_cv = 0;
  fabric::PeerOrder peers = fabric::PeerOrder::kRotated;
  bool by_part = false, merges = false, begins_cold = false;
  uint64_t slice_bytes = 0;    // as PoolOptions has it
  bool source_queues = false;  // as MachineOptions has it
  int32_t round_rows = 8192;   // that each rank ships at once
  // The KV cache in fp8; else in bf16.
  bool fp8_kv = false;
  // Attention's projections in NVFP4, as experts are; else as the checkpoint has them, in bf16.
  bool fp4_projections = false;
  bool uncalibrated = false;
  bool auto_size = false;  // memory that is left holds experts twice; else each is held once
  bool alone = false;      // kernels count as what they take without copies beside them
  int64_t steps = 0;       // each rank takes, where prompts fit in one; 0: six, in a quick lab two
  int64_t output = 1;      // tokens that follow each prompt

  bool ships() const { return mode && mode->ffn == FfnMode::kShip; }
  // Whole prompts of a step.
  int64_t prompts() const { return rows > prompt ? rows / prompt : 1; }
  auto operator<=>(const ContextSteps&) const = default;
};

// A rank's step, on average over all ranks and their steps; ms.
struct ContextTimes {
  double step = 0;
  // The step's parts: what its kernels took beside copies; what the compute stream waited for
  // others, and for pulls; and where rows are shipped, what moved them.
  double attention = 0, grouped = 0, dense = 0, others = 0, merge = 0, waits = 0, exposed = 0,
         exchange = 0;
  double rows = 0;
  double fetch = 0;        // what the rank pulls, at the rate of an undisturbed link
  double least_waits = 0;  // what the rank waits that waits least

  double tokens_per_s() const { return 1e3 * rows / step; }
  double compute() const { return attention + grouped + dense + others + merge; }
};

// Errors: memory_too_small and the like, where the setting does not fit.
base::Result<ContextTimes> RunContext(const ContextSteps& setting, Lab& lab);

// Tokens a second and rank, prompts' and outputs', over a whole job of them: each rank takes what
// comes next, and prompts and decoding share steps. Errors: as above.
base::Result<double> RunMixed(const ContextSteps& setting, Lab& lab);

// Over these steps, which ranks 0 to `ranks` - 1 took, whose kernels took so long.
ContextTimes AverageTimes(const std::vector<StepRecord>& steps,
                          const std::vector<device::OpProfile>& kernels, int ranks,
                          const std::string& device);

// The same with rows that go to experts in NVFP4 and come back as one sum of each rank in bf16, as
// in the paper's baseline, in place of the exact exchange that ran: by what was measured on GB200
// where that is asked for and known, else by the bytes and the link.
ContextTimes WithSums(const ContextSteps& setting, ContextTimes times);

// What DEP's exchange and waits would take if DWDP's rate were so many times its own and all else
// as it is, ms.
double ImpliedMeetings(const ContextTimes& dep, const ContextTimes& dwdp, double gain);

// The terms of an account.
Account TermsOf(const ContextTimes& times);

}  // namespace forebay::repro
