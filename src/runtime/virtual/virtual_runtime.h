// The runtime of fibers, virtual time and seeded choices: the same seed gives the same run, switch
// by switch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "runtime/runtime.h"

namespace forebay::runtime {

class VirtualTask;
class VirtualEvent;

// What happens in virtual time besides tasks: a simulated device.
class TimedWork {
 public:
  virtual ~TimedWork() = default;
  // Called when no task is runnable. Runs events until `limit` in the order of time, and stops
  // at the first time at which it set an event that a task waits for. Returns that time, or
  // `limit`.
  virtual TimeNs RunUntil(TimeNs limit) = 0;
};

// Bound to the thread that calls Run. Its tasks and events may be destroyed after Run, but not
// after the runtime.
class VirtualRuntime final : public Runtime {
 public:
  explicit VirtualRuntime(uint64_t seed);
  ~VirtualRuntime() override;

  // Runs `body` as the task "main" until it and all that was spawned have ended. kDeadlock lists
  // every waiting task and its wait point; the tasks are then given up as they stand (nothing on
  // their stacks is destroyed) and the runtime runs nothing any more.
  base::Status Run(std::function<void()> body);

  // At most one at a time; null: none. It must outlive its use.
  void SetTimedWork(TimedWork* work);

  uint64_t seed() const { return seed_; }
  // A hash of which task ran when, in virtual time: equal for equal runs.
  uint64_t trace_hash() const { return trace_hash_; }
  int64_t num_switches() const { return num_switches_; }

  TimeNs Now() const override { return now_; }
  void Sleep(TimeNs duration) override;
  void Yield() override;
  std::unique_ptr<Task> Spawn(TaskOptions options, std::function<void()> body) override;
  std::unique_ptr<Event> NewEvent(std::string name) override;
  bool is_virtual() const override { return true; }

 private:
  friend class VirtualTask;
  friend class VirtualEvent;
  struct Strand;
  struct WaitPoint {
    const char* what = "";
    const std::string* name = nullptr;
  };

  Strand* AddStrand(TaskOptions options, std::function<void()> body);
  // Ends the running strand; other strands go on.
  [[noreturn]] void End();
  // Gives the thread to a strand chosen by the seed, perhaps to the running one again. The caller
  // has set the running strand's state.
  void SwitchAway();
  // The next strand to run; null when none ever will. Advances time if it must.
  Strand* Choose();
  void WakeExpired();
  void MakeRunnable(Strand* strand);
  // Blocks the running strand until it is woken or the deadline has come.
  void Block(WaitPoint wait_point, TimeNs deadline);
  void Join(Strand* strand);
  base::Status DeadlockReport() const;

  const uint64_t seed_;
  base::Rng rng_;
  TimeNs now_ = 0;
  uint64_t trace_hash_ = 0;
  int64_t num_switches_ = 0;
  int64_t next_id_ = 0;
  bool deadlocked_ = false;
  TimedWork* timed_work_ = nullptr;
  std::unique_ptr<Strand> outside_;  // Run's caller
  // all that have not ended, and ended ones whose Task is alive
  std::vector<std::unique_ptr<Strand>> strands_;
  std::vector<Strand*> runnable_;
  Strand* running_ = nullptr;  // null outside Run
};

}  // namespace forebay::runtime
