// The runtime of threads and the monotonic clock.
#pragma once

#include <memory>

#include "base/status.h"
#include "runtime/runtime.h"

namespace forebay::runtime {

inline constexpr base::ErrorCode kThreadUnavailable{"thread_unavailable"};

// Thread-safe; must outlive its tasks and events. Where the system gives no thread for a task the
// process ends with exit code 1, having said so (kThreadUnavailable).
std::unique_ptr<Runtime> CreateRealRuntime();

}  // namespace forebay::runtime
