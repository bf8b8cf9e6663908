// The runtime of threads and the monotonic clock.
#pragma once

#include <memory>

#include "runtime/runtime.h"

namespace forebay::runtime {

// Thread-safe; must outlive its tasks and events.
std::unique_ptr<Runtime> CreateRealRuntime();

}  // namespace forebay::runtime
