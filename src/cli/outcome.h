// How a command ends.
#pragma once

#include <string_view>

#include "base/status.h"

namespace forebay::cli {

// Prints "forebay: error: MESSAGE [code]" and returns the error's exit code (job/exit_code.h), or
// the one that is given.
int Fail(const base::Status& status);
int Fail(const base::Status& status, int exit_code);

// Prints a line on standard output. What is lost of it FinishOutput says.
void PrintLine(std::string_view line);

// Flushes standard output when a command has ended, and returns its exit code: where any of it was
// lost, says so and returns 1.
int FinishOutput();

}  // namespace forebay::cli
