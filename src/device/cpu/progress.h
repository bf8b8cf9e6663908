// How many commands a stream has completed, and who waits for more.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/cpu/bell.h"
#include "runtime/runtime.h"

namespace forebay::device {

class Progress {
 public:
  // `stream` appears in deadlock reports.
  Progress(runtime::Runtime& runtime, std::string stream) : runtime_(runtime), stream_(std::move(stream)) {}

  bool Reached(uint64_t position) const { return completed_.load() >= position; }
  // One more command is done. Only the stream's own task calls it.
  void Advance();
  // Blocks until `position` commands are done (true) or `timeout` has passed (false). Any number of tasks may wait.
  bool WaitFor(uint64_t position, runtime::TimeNs spin, runtime::TimeNs timeout = runtime::kForever);

 private:
  struct Waiter {
    uint64_t position;
    std::unique_ptr<runtime::Event> event;
  };

  void WakeWaiters(uint64_t completed);

  runtime::Runtime& runtime_;
  const std::string stream_;
  alignas(64) std::atomic<uint64_t> completed_{0};
  std::atomic<int> num_waiters_{0};
  std::mutex mutex_;
  std::vector<Waiter*> waiters_;
  std::vector<std::unique_ptr<runtime::Event>> idle_events_;
};

}  // namespace forebay::device
