#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "device/cpu/progress.h"
#include "device/device.h"

namespace forebay::device {

// What streams of cpu devices post to and await.
class CpuCounter : public Counter {
 public:
  virtual void Post(uint64_t value) = 0;
  // Blocks until `value` is posted (OK) or the counter is aborted.
  virtual base::Status WaitFor(uint64_t value, runtime::TimeNs spin) = 0;
  // For messages; stays while the counter lives.
  virtual const char* name() const = 0;
};

// Between tasks of one runtime.
class TaskCounter final : public CpuCounter {
 public:
  TaskCounter(runtime::Runtime& runtime, std::string name) : value_(runtime, std::move(name)) {}

  void Abort(const base::Status& why) override {
    {
      const std::lock_guard lock(mutex_);
      if (fault_.ok()) fault_ = why;
    }
    value_.AdvanceTo(kAborted);
  }

  void Post(uint64_t value) override { value_.AdvanceTo(value); }
  base::Status WaitFor(uint64_t value, runtime::TimeNs spin) override {
    value_.WaitFor(value, spin);
    if (!value_.Reached(kAborted)) return base::Status::Ok();
    const std::lock_guard lock(mutex_);
    return fault_;
  }
  const char* name() const override { return value_.name(); }

 private:
  static constexpr uint64_t kAborted = UINT64_MAX;

  Progress value_;
  std::mutex mutex_;
  base::Status fault_;  // guarded by mutex_
};

}  // namespace forebay::device
