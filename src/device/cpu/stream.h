#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/rng.h"
#include "device/cpu/bell.h"
#include "device/cpu/command_queue.h"
#include "device/cpu/progress.h"
#include "device/cpu/team.h"
#include "device/device.h"
#include "device/hazard_checker.h"
#include "runtime/runtime.h"

namespace forebay::device {

// A point of a stream: after its first `position` commands. Only control tasks touch it.
struct CpuEvent final : public DeviceEvent {
  Progress* stream = nullptr;  // null: never recorded
  uint64_t position = 0;
  WaitCause cause = WaitCause::kStaging;  // the stream's
};

struct CpuStreamOptions {
  TeamOptions team;
  HazardChecker* checker = nullptr;
  bool profile = false;
  // What a stream that waits for an event of this one waits for.
  WaitCause cause = WaitCause::kStaging;
  // Set on the virtual runtime: other tasks run, and time may pass, before and after each
  // operation's code.
  bool interleave = false;
  runtime::TimeNs max_virtual_delay = 0;
  uint64_t seed = 0;
};

// A queue of commands, and the task that runs them with its team. Destroying it finishes what was
// enqueued.
class CpuStream final : public Stream {
 public:
  CpuStream(runtime::Runtime& runtime, CpuStreamOptions options);
  ~CpuStream() override;

  void Enqueue(const Operation& operation) override;
  // Costs nothing: the event takes the stream's position, no command is needed.
  void Record(DeviceEvent& event) override;
  void Wait(const DeviceEvent& event) override;
  void Post(Counter& counter, uint64_t value) override;
  void Await(Counter& counter, uint64_t value) override;
  void SetLayer(int64_t layer) override { layer_ = static_cast<int32_t>(layer); }
  std::string Place() const override;

  base::Status Synchronize();
  base::Status fault() const;
  // Latches a fault for the next Synchronize; the first one wins. Any thread.
  void Fail(base::Status fault);
  void AddProfileTo(std::vector<OpProfile>& profile) const;
  StreamTime time() const;

 private:
  // Where the stream's task is. `name` is a literal, or the name of what it waits for.
  struct Standing {
    std::atomic<const char*> name{nullptr};  // null: between two commands, or without any
    std::atomic<bool> waits{false};
    std::atomic<int32_t> layer{-1};
  };

  void Serve();
  void RunCommand(Team& team, const Command& command);
  void RunWait(const Command& command);
  // "rank 0 compute in layer 3"
  std::string InLayer() const;
  void PushCounter(Command::Kind kind, Counter& counter, uint64_t value);
  void Die(const base::Status& fault);
  // Waits; dies if the counter was aborted.
  void RunAwait(CpuCounter& counter, uint64_t value);
  void Run(Team& team, const Operation& operation);
  void Interleave();
  void CountCall(const cost::OpDesc& desc, runtime::TimeNs duration);
  void Push();

  runtime::Runtime& runtime_;
  const CpuStreamOptions options_;
  base::Rng delays_;
  CommandQueue queue_;
  Progress progress_;
  Bell bell_;           // rung for each command
  int32_t layer_ = -1;  // to which belongs what the control task enqueues
  // written by the stream's task alone
  Standing standing_;
  std::atomic<runtime::TimeNs> busy_{0}, core_{0};
  std::array<std::atomic<runtime::TimeNs>, kNumWaitCauses> waited_{};  // by cause
  mutable std::mutex mutex_;
  base::Status fault_;  // guarded by mutex_
  // passed an aborted counter; guarded by mutex_, written by the stream's task
  bool dead_ = false;
  std::vector<OpProfile> profile_;  // guarded by mutex_
  std::unique_ptr<runtime::Task> task_;
};

}  // namespace forebay::device
