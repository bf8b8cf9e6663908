// Reading a results file back: which lines of the input are done, and where the whole lines end.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "job/files/failures.h"
#include "job/files/results_rewrite.h"
#include "job/lines/result_id.h"
#include "schedule/lengths.h"

namespace forebay::job {

inline constexpr base::ErrorCode kResultsInvalid{"results_invalid"};
inline constexpr base::ErrorCode kResultsMismatch{"results_of_another_job"};

// What this run knows of an input line: its ordinal among the lines that are not blank, and its
// hash.
struct LineKey {
  size_t ordinal = 0;
  uint64_t hash = 0;
};

// What the results must agree with.
struct ScanExpectation {
  std::string path;                                          // for messages
  size_t num_lines = 0;                                      // the input's, blank ones not counted
  std::function<std::optional<LineKey>(int64_t line)> find;  // by physical line number from 0
  Fingerprints job;                                          // `input` is not looked at
  bool retry_failed = false;                                 // failed results are not wanted
  // What new results say of their numerics class, for messages; may be empty.
  std::string system_fingerprint;
};

inline constexpr uint64_t kNoOffset = UINT64_MAX;

struct ScanOutcome {
  std::vector<uint64_t> offsets;  // by ordinal: where a line's result begins, kNoOffset: not done
  size_t num_done = 0;
  size_t num_failed = 0;  // the part of those done with a status of 400 and above
  FailureTally failures;  // the same, by code
  std::vector<schedule::EarlierAnswer> answers;  // what the others answered
  uint64_t whole_bytes = 0;                      // what lies behind is a torn tail
  std::vector<Piece> dropped;                    // before that: what is to be taken out, ascending
  uint64_t hole_bytes = 0;  // the part of `dropped` never written, and what it damaged
  size_t num_retried = 0;   // the part of `dropped` that failed and runs again
};

// Supplies the file from its begin: fills the buffer as far as it can, 0 at the end, -1 with errno.
using ByteSource = std::function<int64_t(char* buffer, size_t size)>;

// A whole result that a file holds.
struct FoundResult {
  ResultId id;
  bool failed = false;  // its status is 400 or above; then
  std::string error_code, error_message;
  // The tokens of an answer and its prompt, on average, as far as the result says so.
  schedule::EarlierAnswer answer;
  std::string_view text;  // without its LF
  Piece place;            // in the file, LF included
  int64_t number = 0;     // the file's line, from 1
};
using TakeResult = std::function<base::Status(const FoundResult&)>;

// What else a file holds.
struct Walked {
  uint64_t whole_bytes = 0;  // what lies behind is a torn tail
  std::vector<Piece> holes;  // before it, ascending
};

// The "system_fingerprint" of a result's line; empty where it has none.
std::string_view SystemFingerprintOf(std::string_view result);

// Reads one line, without its LF; nothing where it is no whole result. `place` and `number` stay 0.
std::optional<FoundResult> ReadResult(simdjson::dom::parser& parser, std::string_view text);

// Streams through the results file `path` and tells `take` of each whole result, in the file's
// order. Errors: what `take` returns, and kResultsInvalid where the file is no results file.
base::Result<Walked> WalkResults(const ByteSource& source, const std::string& path,
                                 const TakeResult& take);

// Streams through a results file; holds one of its lines at a time. A line is done if and only if
// the file holds its result whole: one valid JSON object that begins with its "id", ended by LF.
// What comes after the last whole line is a torn tail if it can be the begin of a result or is
// filled with NULs, as a crash leaves it. A hole of NULs in the middle, which a power cut leaves of
// pages that were not synced, is dropped with the lines that it damaged; so is a failed result
// whose input line changed, or any failed one where they are to run again. Errors: kResultsInvalid
// (a line in the middle that is no result, two results for one line, a file of something else) and
// kResultsMismatch (a result of another input, model, settings or numerics class).
base::Result<ScanOutcome> ScanResults(const ByteSource& source, const ScanExpectation& expected);

}  // namespace forebay::job
