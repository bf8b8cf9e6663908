// How fast whole jobs run on the first GPU.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace forebay::bench {

struct JobLengths {
  int32_t prompt = 0, output = 0;  // tokens
};
// The first `count` lines of a file: a header, then PROMPT,OUTPUT. Errors: kInvalidArgument.
base::Result<std::vector<JobLengths>> ReadJobLengths(const std::string& path, int count);

struct JobRun {
  bool graphs = true;
  // A line for each kind of operation instead of rates; each is waited for.
  bool profile = false;
};

// A greedy job on random weights of the configuration in the folder `model`, in a numerics class:
// lines of JSON on stdout. Errors: the engine's.
base::Status PrintJobRate(const std::string& model, std::string_view numerics,
                          const std::vector<JobLengths>& lengths, JobRun run);

}  // namespace forebay::bench
