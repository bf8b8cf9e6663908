// All time, blocking and spawning goes through a Runtime. Real: threads and the monotonic clock.
// Virtual: fibers on one thread, virtual time, every choice drawn from a seed, so that any
// interleaving can be replayed.
//
// Invariants:
//  1. A task blocks only in Event::Wait, Sleep, Yield, Spawn and Join. The virtual runtime may
//     switch tasks in each of
//     these calls (also where a Wait need not block) and nowhere else; so a lock held across one of
//     them is a bug.
//  2. In the virtual runtime time advances only when no task is runnable, to the earliest timer.
//  3. A virtual run in which tasks wait, none is runnable and no timer is set is a deadlock: Run
//     returns an error
//     that lists every task with the wait point it is at.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"

namespace forebay::runtime {

using TimeNs = int64_t;
inline constexpr TimeNs kForever = INT64_MAX;
// The longest time in which a task that waits for work or results notices the end of the run.
inline constexpr TimeNs kGlance = 50'000'000;
inline constexpr base::ErrorCode kDeadlock{"runtime_deadlock"};

constexpr double SecondsOf(TimeNs duration) { return static_cast<double>(duration) * 1e-9; }

// now + timeout, or kForever.
constexpr TimeNs DeadlineAfter(TimeNs now, TimeNs timeout) {
  return timeout >= kForever - now ? kForever : now + timeout;
}

// A condition that tasks wait for: stays set until Reset. A waiter that finds the event reset again
// before it ran goes on waiting. Made by a Runtime, usable only with it; any task may call any
// member; a task whose Wait returned true may destroy it even while the Set that woke it is
// returning.
class Event {
 public:
  virtual ~Event() = default;
  virtual void Set() = 0;
  virtual void Reset() = 0;
  virtual bool IsSet() const = 0;
  // Blocks the calling task until the event is set (true) or `timeout` has passed (false).
  virtual bool Wait(TimeNs timeout = kForever) = 0;
};

// A spawned activity. Destroying it joins it; joining twice is fine.
class Task {
 public:
  virtual ~Task() = default;
  virtual void Join() = 0;
};

struct TaskOptions {
  std::string name;
  int core = -1;                 // pin to this core (real runtime; -1: no pinning)
  bool flush_denormals = false;  // FTZ + DAZ from birth: every compute thread
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual TimeNs Now() const = 0;
  virtual void Sleep(TimeNs duration) = 0;
  // Lets other tasks run. The virtual runtime may switch here; compute loops that spin must call
  // it.
  virtual void Yield() = 0;
  virtual std::unique_ptr<Task> Spawn(TaskOptions options, std::function<void()> body) = 0;
  // `name` appears in deadlock reports.
  virtual std::unique_ptr<Event> NewEvent(std::string name) = 0;
  virtual bool is_virtual() const = 0;
};

}  // namespace forebay::runtime
