#include "job/exit_code.h"

#include <utility>

#include "job/job.h"
#include "job/merge.h"
#include "job/output_check.h"
#include "job/results_log.h"

namespace forebay::job {

std::string_view Name(ExitCode code) {
  switch (code) {
    case ExitCode::kComplete: return "complete";
    case ExitCode::kDrained: return "drained";
    case ExitCode::kAborted: return "aborted";
    case ExitCode::kStalled: return "stalled";
    case ExitCode::kAllFailed: return "all_failed";
    default: return "failed";
  }
}

ExitCode ExitCodeOf(RunEnd end) {
  switch (end) {
    case RunEnd::kComplete: return ExitCode::kComplete;
    case RunEnd::kDrained: return ExitCode::kDrained;
    case RunEnd::kAborted: return ExitCode::kAborted;
    case RunEnd::kStalled: return ExitCode::kStalled;
    case RunEnd::kSinkFailed: break;
  }
  return ExitCode::kError;
}

ExitCode ExitCodeOf(const base::Status& status) {
  constexpr std::pair<base::ErrorCode, ExitCode> kCodes[] = {
      {base::kOkCode, ExitCode::kComplete},
      {kInputUnreadable, ExitCode::kBadInput},
      {kInputChanged, ExitCode::kBadInput},
      {kOutputTaken, ExitCode::kUsage},
      {kBadLines, ExitCode::kBadInput},
      {kResultsIo, ExitCode::kResultsIo},
      {kResultsReplaced, ExitCode::kResultsIo},
      {kResultsLocked, ExitCode::kResultsLocked},
      {kResultsInvalid, ExitCode::kResultsMismatch},
      {kResultsMismatch, ExitCode::kResultsMismatch},
      {kResultsDiffer, ExitCode::kResultsMismatch},
      {kStalled, ExitCode::kStalled},
      {kAllLinesFailed, ExitCode::kAllFailed},
  };
  for (const auto& [code, exit_code] : kCodes) {
    if (status.code() == code) return exit_code;
  }
  return ExitCode::kError;
}

}  // namespace forebay::job
