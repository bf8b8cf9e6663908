// How tasks of a device wait for each other: they spin, then sleep.
#pragma once

#include <immintrin.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "runtime/runtime.h"

namespace forebay::device {

// Returns whether `condition` came true within `spin`. It is evaluated at least once. On the
// virtual runtime, where nothing else runs meanwhile, `spin` must be 0.
template <typename Condition>
bool SpinUntil(runtime::Runtime& runtime, runtime::TimeNs spin, const Condition& condition) {
  if (condition()) return true;
  if (spin == 0) return false;
  const runtime::TimeNs start = runtime.Now();
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      _mm_pause();
    }
  } while (runtime.Now() - start < spin);
  return false;
}

// One task waits at a bell for conditions that others make true; they ring after each change. The
// condition's atomics and the changes to them must be sequentially consistent: either the sleeper
// sees the change, or the ringer sees that it sleeps.
class alignas(64) Bell {
 public:
  Bell(runtime::Runtime& runtime, std::string name)
      : runtime_(runtime), event_(runtime.NewEvent(std::move(name))) {}

  template <typename Condition>
  void WaitUntil(runtime::TimeNs spin, const Condition& condition) {
    if (SpinUntil(runtime_, spin, condition)) return;
    asleep_.store(true);
    while (!condition()) {
      event_->Wait();
      event_->Reset();
    }
    asleep_.store(false, std::memory_order_relaxed);
  }

  void Ring() {
    if (asleep_.load()) event_->Set();
  }

 private:
  runtime::Runtime& runtime_;
  const std::unique_ptr<runtime::Event> event_;
  std::atomic<bool> asleep_{false};
};

}  // namespace forebay::device
