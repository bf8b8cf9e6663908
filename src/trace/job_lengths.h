// How long a job's prompts and answers are, and how the engine is told before it runs them.
#pragma once

#include <vector>

#include "layout/options.h"
#include "trace/trace.h"

namespace forebay::trace {

struct JobLengths {
  std::vector<layout::ChoiceShape> choices;  // in the job's order
  double times = 1;                          // the job has `times` as many choices
  bool exact = false;                        // outputs are known, and these are all choices
  double held = 0;                           // layout::EngineOptions::job_held
};

// The mean number of tokens that choices hold over their decoding steps. 0: there are none.
class MeanHeld {
 public:
  void Add(double prompt, double output, double count = 1) {
    held_ += count * output * (prompt + output / 2);
    steps_ += count * output;
  }
  double mean() const { return steps_ == 0 ? 0 : held_ / steps_; }

 private:
  double held_ = 0, steps_ = 0;
};

// Tells the engine how long the job's choices are and, where `all_there`, that these are all.
// Options that name a mean context stay as they are, but for job_held.
void DescribeLengths(JobLengths job, bool all_there, layout::EngineOptions* options);

// The same for a trace; requests that come over time are not all there.
void DescribeTrace(const LengthTrace& trace, layout::EngineOptions* options, bool all_there = true);

}  // namespace forebay::trace
