#include "device/cpu/progress.h"

#include <algorithm>
#include <utility>

namespace forebay::device {

void Progress::Advance() {
  const uint64_t completed = completed_.load(std::memory_order_relaxed) + 1;
  completed_.store(completed);
  // The lock is taken only where somebody waits: a waiter stores its position first and then looks
  // again, so that one of the two sees the other.
  if (next_awaited_.load() <= completed) WakeWaiters(completed);
}

void Progress::AdvanceTo(uint64_t position) {
  uint64_t completed = completed_.load();
  while (completed < position && !completed_.compare_exchange_weak(completed, position)) {
  }
  if (next_awaited_.load() <= position) WakeWaiters(position);
}

void Progress::WakeWaiters(uint64_t completed) {
  const std::lock_guard lock(mutex_);
  for (Waiter* waiter : waiters_) {
    if (waiter->position <= completed) waiter->event->Set();
  }
}

void Progress::Fail(const base::Status& why) {
  const std::lock_guard lock(mutex_);
  if (fault_.ok()) fault_ = why;
  failed_ = true;
}

base::Status Progress::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

void Progress::FindNextAwaited() {
  uint64_t least = UINT64_MAX;
  for (const Waiter* waiter : waiters_) least = std::min(least, waiter->position);
  next_awaited_.store(least);
}

bool Progress::WaitFor(uint64_t position, runtime::TimeNs spin, runtime::TimeNs timeout) {
  const auto reached = [&] { return Reached(position); };
  if (SpinUntil(runtime_, spin, reached)) return true;
  Waiter waiter{position, nullptr};
  {
    const std::lock_guard lock(mutex_);
    if (idle_events_.empty()) {
      waiter.event = runtime_.NewEvent("progress of " + name_);
    } else {
      waiter.event = std::move(idle_events_.back());
      idle_events_.pop_back();
    }
    waiters_.push_back(&waiter);
    FindNextAwaited();
  }
  // It may have been reached before the position was stored, and nobody would ring.
  if (!reached()) waiter.event->Wait(timeout);
  const std::lock_guard lock(mutex_);
  std::erase(waiters_, &waiter);
  FindNextAwaited();
  waiter.event->Reset();
  idle_events_.push_back(std::move(waiter.event));
  return reached();
}

}  // namespace forebay::device
