#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "device/cpu/progress.h"
#include "device/device.h"

namespace forebay::device {

class CpuCounter final : public Counter {
 public:
  CpuCounter(runtime::Runtime& runtime, std::string name) : value_(runtime, std::move(name)) {}

  void Abort(const base::Status& why) override {
    {
      const std::lock_guard lock(mutex_);
      if (fault_.ok()) fault_ = why;
    }
    value_.AdvanceTo(kAborted);
  }

  void Post(uint64_t value) { value_.AdvanceTo(value); }
  // Blocks until `value` is posted (OK) or the counter is aborted.
  base::Status WaitFor(uint64_t value, runtime::TimeNs spin) {
    value_.WaitFor(value, spin);
    if (!value_.Reached(kAborted)) return base::Status::Ok();
    const std::lock_guard lock(mutex_);
    return fault_;
  }

 private:
  static constexpr uint64_t kAborted = UINT64_MAX;

  Progress value_;
  std::mutex mutex_;
  base::Status fault_;  // guarded by mutex_
};

}  // namespace forebay::device
