// How `forebay run` ends, as the shell sees it (docs/formats/exit-codes.md).
#pragma once

#include <string_view>

#include "base/status.h"
#include "forebay/engine.h"

namespace forebay::job {

enum class ExitCode : int {
  kComplete = 0,  // every line has its result, failed ones included, but not all of them failed
  kError = 1,     // anything that has no code of its own, say a model that cannot be loaded
  kUsage = 2,     // what the command line says
  kBadInput = 3,  // the input cannot be read or changed, or --strict found bad lines
  // a signal; what ran was finished, or was given up when the grace time was over
  kDrained = 4,
  kAborted = 5,          // a second signal
  kResultsIo = 6,        // the results could not be written, say the disk is full
  kResultsLocked = 7,    // another process writes them
  kResultsMismatch = 8,  // the results file is another job's, or no results file
  kStalled = 9,          // the engine's watchdog saw no progress
  kAllFailed = 10,       // every line has its result, and each is an error
};

// "complete", "drained", "aborted", "stalled", "all_failed"; "failed" for all others.
std::string_view Name(ExitCode code);
ExitCode ExitCodeOf(RunEnd end);
// kUsage where what the command line says cannot be, wherever that was found out; kError for errors
// without a code of their own.
ExitCode ExitCodeOf(const base::Status& status);

}  // namespace forebay::job
