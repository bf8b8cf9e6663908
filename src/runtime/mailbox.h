// A bounded queue of flat messages between tasks, first in, first out.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "runtime/runtime.h"

namespace forebay::runtime {

// Any number of senders and receivers, on both runtimes. A message is a flat struct without
// pointers, so that its receiver may be another process one day. No lock is held where a task can
// be switched.
//
// Invariant, under the lock: readable_ is set if and only if a message is there or the box is
// closed; writable_ if and only if there is room or the box is closed.
template <typename T>
class Mailbox {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // REQUIRES: capacity > 0.
  Mailbox(Runtime& runtime, const std::string& name, size_t capacity)
      : runtime_(runtime),
        readable_(runtime.NewEvent(name + " has a message")),
        writable_(runtime.NewEvent(name + " has room")),
        messages_(capacity) {
    FB_CHECK(capacity > 0, "mailbox {} without room", name);
    writable_->Set();
  }

  // Blocks while the box is full. False: `timeout` has passed, or the box is closed.
  bool Send(const T& message, TimeNs timeout = kForever) {
    const TimeNs deadline = DeadlineAfter(runtime_.Now(), timeout);
    while (WaitUntil(*writable_, deadline)) {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      if (count_ == messages_.size()) continue;  // another sender was faster
      messages_[(first_ + count_++) % messages_.size()] = message;
      Announce();
      return true;
    }
    return false;
  }

  // Blocks while the box is empty. Nothing: `timeout` has passed, or the box is closed and
  // everything was received.
  std::optional<T> Receive(TimeNs timeout = kForever) {
    const TimeNs deadline = DeadlineAfter(runtime_.Now(), timeout);
    while (WaitUntil(*readable_, deadline)) {
      const std::lock_guard lock(mutex_);
      if (count_ == 0 && closed_) return std::nullopt;
      if (count_ == 0) continue;  // another receiver was faster
      const T message = messages_[first_];
      first_ = (first_ + 1) % messages_.size();
      --count_;
      Announce();
      return message;
    }
    return std::nullopt;
  }

  // Nothing more can be sent; messages in it can still be received.
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    Announce();
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  bool WaitUntil(Event& event, TimeNs deadline) {
    return event.Wait(deadline == kForever ? kForever
                                           : std::max<TimeNs>(0, deadline - runtime_.Now()));
  }

  void Announce() {
    count_ > 0 || closed_ ? readable_->Set() : readable_->Reset();
    count_ < messages_.size() || closed_ ? writable_->Set() : writable_->Reset();
  }

  Runtime& runtime_;
  const std::unique_ptr<Event> readable_, writable_;
  mutable std::mutex mutex_;
  std::vector<T> messages_;
  size_t first_ = 0, count_ = 0;
  bool closed_ = false;
};

}  // namespace forebay::runtime
