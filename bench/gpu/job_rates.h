// How fast whole jobs run on the first GPU.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace forebay::bench {

// A job on random weights of the configuration in the folder `model`, in a numerics class: lines of
// JSON on stdout, then a line for each kind of operation. Errors: the engine's.
base::Status PrintJobRate(const std::string& model, std::string_view numerics);

}  // namespace forebay::bench
