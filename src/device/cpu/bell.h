// How tasks of a device wait for each other: spin, then give way, then sleep.
#pragma once

#include <immintrin.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "runtime/runtime.h"

namespace forebay::device {

// How long a task spins, and then yields its core to whoever wants it, before it sleeps. Zero on the virtual runtime,
// where nothing else runs meanwhile.
struct Patience {
  runtime::TimeNs spin = 0;
  runtime::TimeNs yield = 0;
};

// Returns whether `condition` came true before patience ran out. It is evaluated at least once.
template <typename Condition>
bool SpinUntil(runtime::Runtime& runtime, Patience patience, const Condition& condition) {
  if (condition()) return true;
  if (patience.spin == 0) return false;
  const runtime::TimeNs start = runtime.Now();
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      _mm_pause();
    }
  } while (runtime.Now() - start < patience.spin);
  while (runtime.Now() - start < patience.spin + patience.yield) {
    if (condition()) return true;
    runtime.Yield();
  }
  return condition();
}

// One task waits at a bell for conditions that others make true; they ring after each change. The condition's atomics
// and the changes to them must be sequentially consistent: either the sleeper sees the change, or the ringer sees that
// it sleeps.
class alignas(64) Bell {
 public:
  Bell(runtime::Runtime& runtime, Patience patience, std::string name)
      : runtime_(runtime), patience_(patience), event_(runtime.NewEvent(std::move(name))) {}

  template <typename Condition>
  void WaitUntil(const Condition& condition) {
    if (SpinUntil(runtime_, patience_, condition)) return;
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
  const Patience patience_;
  const std::unique_ptr<runtime::Event> event_;
  std::atomic<bool> asleep_{false};
};

}  // namespace forebay::device
