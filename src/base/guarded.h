// A value that one thread sets and any thread may ask for.
#pragma once

#include <mutex>
#include <utility>

namespace forebay::base {

template <typename T>
class Guarded {
 public:
  void Set(T value) {
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
  }
  T Get() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  mutable std::mutex mutex_;
  T value_;
};

}  // namespace forebay::base
