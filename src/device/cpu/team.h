// The workers of a stream: its own task, which is worker 0, and helper tasks.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/bell.h"
#include "device/operation.h"
#include "runtime/runtime.h"

namespace forebay::device {

struct TeamOptions {
  std::string name;  // "rank 0 compute"
  int num_workers = 1;
  std::vector<int> cores;        // one a worker, or empty
  std::span<std::byte> scratch;  // shared out evenly
  runtime::TimeNs spin = 0;      // how long a worker spins for the others before it sleeps
};

// Run is called by one task, worker 0. Destroying the team ends its helpers.
class Team {
 public:
  Team(runtime::Runtime& runtime, const TeamOptions& options);
  ~Team();

  int num_workers() const { return num_workers_; }
  // Calls the operation's code once on every worker; returns when all have returned.
  void Run(const Operation& operation);

 private:
  class Context final : public WorkerContext {
   public:
    explicit Context(Team& team) : team_(&team) {}
    void Barrier() const override { team_->Barrier(worker); }

   private:
    Team* team_;
  };

  void Barrier(int worker);
  void Help(int worker);
  void RingOthers(int worker);
  // How long `worker` spins now: not at all beside a teammate on the same core, as happens on a
  // busy machine; it would only keep the other from its work.
  runtime::TimeNs SpinOf(int worker);
  void NoteCore(int worker);
  // Publishes `operation` (null: the end) to the helpers.
  void Dispatch(const Operation* operation);

  const int num_workers_;
  const runtime::TimeNs spin_;
  std::vector<Context> contexts_;
  std::vector<std::atomic<int>> cores_;       // where each worker was last seen; seldom written
  std::vector<std::unique_ptr<Bell>> bells_;  // one a worker
  alignas(64) std::atomic<int64_t> ticket_{0};
  alignas(64) const Operation* operation_ = nullptr;
  std::atomic<uint64_t> epoch_{0};                 // dispatches so far
  alignas(64) std::atomic<int> unfinished_{0};     // helpers that still run the operation
  alignas(64) std::atomic<int> arrived_{0};        // at the barrier
  alignas(64) std::atomic<uint64_t> barriers_{0};  // barriers passed so far
  std::vector<std::unique_ptr<runtime::Task>> helpers_;
};

}  // namespace forebay::device
