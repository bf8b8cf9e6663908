// Several results files of one job -> one, in the order of the input.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace forebay::job {

inline constexpr base::ErrorCode kResultsDiffer{"results_differ"};

struct MergeOptions {
  std::vector<std::string> parts;
  std::string output;
  std::string input;  // "": what is missing is told by gaps between the lines alone
};

struct MergeOutcome {
  int64_t lines = 0;  // results that were written
  int64_t twice = 0;  // equal answers of a line that had one
  uint64_t torn_bytes = 0;
  // ranges of lines without a result, from 1, both ends included
  std::vector<std::pair<int64_t, int64_t>> missing;
};

// The output comes into being whole, by a rename, as ReplaceResults has it; what stays unfinished
// `forebay run` can go on with. A part's torn tail is left out, as a resumed run does. Errors:
// those of CheckOutputs for an output that is no part, kResultsMismatch (parts of different jobs,
// or not of this input), kResultsDiffer (two answers of one line that are not equal),
// kResultsInvalid (no results file), kResultsIo (files), kResultsLocked (the output is a part that
// a job writes to), kInvalidArgument (the output exists and is no part).
base::Result<MergeOutcome> MergeResults(const MergeOptions& options);

}  // namespace forebay::job
