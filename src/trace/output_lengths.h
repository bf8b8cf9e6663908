// How long the answers of an earlier run were, for a simulation of the same job.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "base/status.h"

namespace forebay::trace {

inline constexpr base::ErrorCode kOutputLengthsInvalid{"output_lengths_invalid"};

// By line of the input, from 0: tokens a choice. Of a request with several choices the mean,
// rounded up.
using OutputLengths = std::unordered_map<int64_t, int32_t>;

// Reads a results file (docs/formats/results-log.md); failed lines have no length, a torn last line
// is passed over. Errors: kIoError, kOutputLengthsInvalid (names file and line).
base::Result<OutputLengths> ReadOutputLengths(const std::string& path);

}  // namespace forebay::trace
