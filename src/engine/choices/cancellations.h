// Requests that their callers gave up, until their results have come. Any thread may call.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_set>

#include "base/status.h"
#include "forebay/request.h"

namespace forebay::engine {

inline constexpr base::ErrorCode kRequestCancelled{"request_cancelled"};
// The result of a request that was given up.
inline RequestResult CancelledResult(int64_t id) {
  return {.id = id,
          .http_status = 499,
          .error_type = kRequestCancelled.name,
          .error_message = "the request was cancelled",
          .error_code = kRequestCancelled.name};
}

class Cancellations {
 public:
  // Costs nothing where nobody cancels: replicas ask at each step's border.
  bool any() const { return count_ > 0; }
  void Add(int64_t id) {
    const std::lock_guard lock(mutex_);
    ids_.insert(id);
    count_ = ids_.size();
  }
  bool Contains(int64_t id) {
    if (!any()) return false;
    const std::lock_guard lock(mutex_);
    return ids_.contains(id);
  }
  // The sink has the request's result.
  void Forget(int64_t id) {
    if (!any()) return;
    const std::lock_guard lock(mutex_);
    ids_.erase(id);
    count_ = ids_.size();
  }
  void Clear() {
    const std::lock_guard lock(mutex_);
    ids_.clear();
    count_ = 0;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<int64_t> ids_;
  std::atomic<size_t> count_{0};  // ids_.size(), without the lock
};

}  // namespace forebay::engine
