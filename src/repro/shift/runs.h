// What the rows of Shift Parallelism run: a job on eight simulated devices under one layout, and
// what came of it. Each is run once, whichever rows need it.
#pragma once

#include <string>
#include <vector>

#include "repro/claim.h"
#include "repro/lab.h"
#include "repro/shift/recorded.h"

namespace forebay::repro {

// The step budget that the paper's system has where nobody sets one (vLLM 0.9 behind its server),
// and those that a baseline's best is sought among.
inline constexpr int32_t kBudget = 8192;
inline constexpr int32_t kBudgets[] = {2048, 4096, 8192, 16384};

// How eight devices run a model. With sp > 1 all steps are taken in the layout's mode, but where
// they shift: then either it or tp alone (`ends`), or any between, by price or by a threshold.
struct ShiftLayout {
  int dp = 1, sp = 1, tp = 1;
  bool shift = false, ends = true;
  int64_t threshold = 0;
  bool by_expert =
      false;  // each rank along sp holds an equal part of the experts, and pulls others

  auto operator<=>(const ShiftLayout&) const = default;
};
inline constexpr ShiftLayout kDp8{.dp = 8}, kTp8{.tp = 8}, kSp8{.sp = 8},
    kShift{.sp = 8, .shift = true}, kSp4Tp2{.sp = 4, .tp = 2}, kTwoTp4{.dp = 2, .tp = 4},
    kFourTp2{.dp = 4, .tp = 2}, kShiftOfScout{.sp = 4, .tp = 2, .shift = true},
    kShiftByExpert{.sp = 8, .shift = true, .by_expert = true};
std::string NameOf(const ShiftLayout& layout);

// Requests all alike, or `mixed`: half of them short prompts (150 + 200 tokens), half of an agent
// (6000 + 250), in turn; or recorded ones, which come at `rate` as they were recorded.
struct ShiftTraffic {
  int32_t prompt = 4000, output = 250;
  int64_t requests = 2000;
  bool mixed = false;
  Recording recorded = Recording::kNone;
  int64_t concurrency = 0;  // as job::ArrivalOptions; 1: one at a time
  double rate = 0;          // requests a second; 0: all at once
  std::string bursts;       // as --arrivals
  int32_t running = 0;      // choices of a replica; 0: 1024
};

struct ShiftRun {
  std::string model = kLlama;
  ShiftLayout layout;
  ShiftTraffic traffic;
  int32_t budget = kBudget;
  std::string device = "h200";
  bool uncalibrated = false;
  bool bf16_wire = false;  // sums of tp are priced so
};

// One rank's meetings of a kind, on average over the ranks: what they take, how many they are, and
// the bytes that it brings to them (what a measured kernel sends of these is its own affair).
// `latency` is what one takes that brings next to nothing.
struct ShiftMeetings {
  double seconds = 0, count = 0, bytes = 0, latency = 0;

  // seconds = count x latency + bytes / rate; 0: no bytes took longer than that.
  double rate() const;
};

// Seconds of one rank, on average over the ranks. What a step's host time is the simulator spends
// before its first kernel, the embedding, which takes next to nothing itself.
struct ShiftCosts {
  double linear = 0, head = 0, attention = 0, head_exchange = 0, elementwise = 0, host = 0;
  ShiftMeetings all_to_all, all_reduce;

  double sums_and_rows() const { return all_to_all.seconds + all_reduce.seconds; }
  double collectives() const { return sums_and_rows() + head_exchange; }
  double sum() const { return linear + head + attention + collectives() + elementwise + host; }
  void operator-=(const ShiftCosts& less);
};

struct ShiftOutcome {
  double requests = 0, seconds = 0;
  double steps = 0, step_seconds = 0;  // a replica's: how many, and the time in them
  double layers = 0;
  // What all ranks read from others, by the counters. Measured all-reduces are priced as such, and
  // counted as the one meeting that takes their place.
  double bytes_all_to_all = 0, bytes_all_reduce = 0;
  double tokens_per_s = 0;       // prompts and outputs
  double peak_tokens_per_s = 0;  // in the best second; a step's tokens come evenly in its time
  job::Latencies latencies;
  ShiftCosts costs;
  double preemptions = 0;
  bool shortened = false;  // by a quick lab
};

// A quick lab runs an eighth of the requests, where there are more than 16.
base::Result<ShiftOutcome> RunShift(const ShiftRun& run, Lab& lab);

// Of a run's devices, layout and model.
layout::EngineOptions OptionsOf(const ShiftRun& run);

// The parts of a step's time, in ms.
Account TermsOf(const ShiftOutcome& outcome);

}  // namespace forebay::repro
