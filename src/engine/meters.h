// What is measured of every token and step, whoever asks for it; buckets are vLLM's.
#pragma once

#include <cstdint>

#include "base/histogram.h"

namespace forebay::engine {

// Upper ends of buckets: seconds from a token to the next, and rows of a step.
inline constexpr double kTokenSeconds[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                           .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
inline constexpr double kStepRows[] = {1,   8,    16,   32,   64,   128,  256,
                                       512, 1024, 2048, 4096, 8192, 16384};

struct Meters {
  // From a choice's token to its next one, a preemption between them included.
  base::Histogram token_gap{kTokenSeconds};
  base::Histogram step_rows{kStepRows};
  int64_t prefix_queries = 0;  // prompt tokens that were looked up in the prefix index
  int64_t choices_ahead = 0;   // now: of requests that no replica has taken yet

  void Add(const Meters& other) {
    token_gap.Add(other.token_gap);
    step_rows.Add(other.step_rows);
    prefix_queries += other.prefix_queries;
  }
};

}  // namespace forebay::engine
