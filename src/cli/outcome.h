// How a command ends.
#pragma once

#include "base/status.h"

namespace forebay::cli {

// Prints "forebay: error: MESSAGE [code]" and returns `exit_code`.
int Fail(const base::Status& status, int exit_code = 1);

// Flushes standard output when a command has ended, and returns its exit code: where any of it was
// lost, says so and returns 1.
int FinishOutput();

}  // namespace forebay::cli
