// A growing number and its waiters: the commands that a stream has completed, or a posted
// value.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/cpu/bell.h"
#include "runtime/runtime.h"

namespace forebay::device {

class Progress {
 public:
  // `name` appears in deadlock reports.
  Progress(runtime::Runtime& runtime, std::string name)
      : runtime_(runtime), name_(std::move(name)) {}

  const char* name() const { return name_.c_str(); }
  bool Reached(uint64_t position) const { return completed_.load() >= position; }
  // One more. REQUIRES: no other task advances it.
  void Advance();
  // At least `position` from here on. Any task.
  void AdvanceTo(uint64_t position);
  // Every later wait returns `why`; the first call's stays. Any task.
  void Fail(const base::Status& why);
  bool failed() const { return failed_; }
  base::Status fault() const;
  // Blocks until `position` is reached (true) or `timeout` has passed (false). Any number of tasks
  // may wait.
  bool WaitFor(uint64_t position, runtime::TimeNs spin,
               runtime::TimeNs timeout = runtime::kForever);

 private:
  struct Waiter {
    uint64_t position;
    std::unique_ptr<runtime::Event> event;
  };

  void WakeWaiters(uint64_t completed);
  // REQUIRES: mutex_ is held.
  void FindNextAwaited();

  runtime::Runtime& runtime_;
  const std::string name_;
  alignas(64) std::atomic<uint64_t> completed_{0};
  std::atomic<uint64_t> next_awaited_{UINT64_MAX};  // the least position that somebody waits for
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  base::Status fault_;  // guarded by mutex_
  std::vector<Waiter*> waiters_;
  std::vector<std::unique_ptr<runtime::Event>> idle_events_;
};

}  // namespace forebay::device
