// What a run writes must not overwrite what it reads, nor another of its outputs.
#pragma once

#include <span>
#include <string>

#include "base/status.h"

namespace forebay::job {

inline constexpr base::ErrorCode kOutputTaken{"output_taken"};

// A file or folder that a flag names; an empty path is not given.
struct NamedPath {
  std::string flag, path;
  base::ErrorCode not_writable = base::kIoError;  // the code for an output
};

// Checks before anything runs that each output can be written and is a file of its own: no other
// output, no input, and no file inside an input that is a folder, whichever names, links or hard
// links lead to it. Devices and pipes may be named as often as one likes. Creates and changes
// nothing. Errors name the flags: kOutputTaken, `not_writable`, or kInvalidArgument for "-", which
// is no file.
base::Status CheckOutputs(std::span<const NamedPath> outputs, std::span<const NamedPath> inputs);

}  // namespace forebay::job
