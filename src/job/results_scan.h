// Reading a results file back: which lines of the input are done, and where the whole lines end.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "job/result_id.h"

namespace forebay::job {

inline constexpr base::ErrorCode kResultsInvalid{"results_invalid"};
inline constexpr base::ErrorCode kResultsMismatch{"results_of_another_job"};

// What this run knows of an input line: its ordinal among the lines that are not blank, and its hash.
struct LineKey {
  size_t ordinal = 0;
  uint64_t hash = 0;
};

// What the results must agree with.
struct ScanExpectation {
  std::string path;                                          // for messages
  size_t num_lines = 0;                                      // of the input, blank ones not counted
  std::function<std::optional<LineKey>(int64_t line)> find;  // by physical line number from 0
  Fingerprints job;                                          // `input` is not looked at
};

inline constexpr uint64_t kNoOffset = UINT64_MAX;

struct ScanOutcome {
  std::vector<uint64_t> offsets;  // by ordinal: where a line's result begins, kNoOffset: not done
  size_t num_done = 0;
  size_t num_failed = 0;          // of those done, the ones with a status of 400 and above
  uint64_t whole_bytes = 0;       // what lies behind is a torn tail
};

// Supplies the file from its begin: fills the buffer as far as it can, 0 at the end, -1 with errno.
using ByteSource = std::function<int64_t(char* buffer, size_t size)>;

// Streams through a results file; holds one of its lines at a time. A line is done if and only if the file holds
// its result whole: one valid JSON object that begins with its "id", ended by LF. What comes after the last whole
// line is a torn tail if it can be the begin of a result or is filled with NULs, as a crash leaves it. Errors:
// kResultsInvalid (a line in the middle that is no result, two results for one line, a file of something else) and
// kResultsMismatch (a result of another input, model, settings or numerics class).
base::Result<ScanOutcome> ScanResults(const ByteSource& source, const ScanExpectation& expected);

}  // namespace forebay::job
