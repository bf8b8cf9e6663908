// The engine: one queue of requests, replicas that pull from it, results in completion order.
#pragma once

#include <memory>
#include <vector>

#include "device/sim/event_engine.h"
#include "engine/group_control.h"
#include "engine/options.h"
#include "engine/replica.h"
#include "engine/request_queue.h"
#include "engine/steal_board.h"
#include "forebay/engine.h"
#include "runtime/runtime.h"

namespace forebay::engine {

// What compose.cc puts together. Destroyed from the end: replicas before the machine that they run on.
struct EngineParts {
  std::unique_ptr<device::EventEngine> sim;  // of simulated devices; null: real ones
  std::vector<std::unique_ptr<fabric::Fabric>> fabrics;  // one a rank; empty: ranks share nothing
  std::vector<std::unique_ptr<Replica>> replicas;
  int replicas_per_group = 1;
  int replicas_per_fate = 1;       // that cannot go on without each other
  bool steal = true;               // replicas without work get some from others of their group
  size_t most_ahead = 0;           // requests that are read ahead: a batch of all replicas
  std::optional<GroupOptions> group;  // of each, whose replicas agree on pull or ship; nothing: each for itself
  ModelFacts facts;
  SequenceContext context;
  int64_t pool_layers = 0;  // of the model, that ranks share
  std::string isa;  // of the kernels, or the name of the simulated machine
};

class LocalEngine : public Engine {
 public:
  LocalEngine(runtime::Runtime& runtime, EngineParts parts) : runtime_(runtime), parts_(std::move(parts)) {}
  ~LocalEngine() override;

  const ModelFacts& facts() const override { return parts_.facts; }
  std::optional<RequestResult> Refusal(const Request& request) const override;
  RunEnd Run(RequestSource& source, ResultSink& sink, RunControl& control) override;
  EngineStats stats() const override;
  void SetStepObserver(StepObserver* observer) override { observer_ = observer; }
  // Runs from here on hand out requests as the log says. REQUIRES: it is of the same job on as many replicas; nobody steals.
  void ReplayHandOut(const HandOutLog* log) { replay_ = log; }
  const std::string& isa() const { return parts_.isa; }
  int num_replicas() const { return static_cast<int>(parts_.replicas.size()); }
  const Replica& replica(int index) const { return *parts_.replicas[index]; }
  // Time by operation, where profiling is on: of all replicas.
  std::vector<device::OpProfile> Profile() const;

 private:
  // What the replicas of a run share.
  struct Shared {
    RequestQueue queue;
    StealBoard board;
    RunControl& control;
    std::vector<std::atomic<bool>> failed;  // by fate
  };
  RunEnd RunReplica(Replica& replica, Shared& run);
  // A replica's fault is its group's: nobody waits for it any more.
  RunEnd Stalled(const Replica& replica, const std::string& what, Shared& run);
  size_t FateOf(const Replica& replica) const;
  // null: it is for itself.
  GroupControl* GroupOf(size_t replica) const;
  // Takes requests until the replica has enough for the next step, or none is ready.
  void TakeRequests(Replica& replica, RequestQueue& queue);
  // Gives to one that asks.
  void GiveAway(Replica& replica, Shared& run);
  // Takes over what others gave.
  base::Status Receive(Replica& replica, Shared& run);
  bool Deliver(const Replica& replica, std::vector<RequestResult>* finished, RequestQueue& queue);
  void Observe(StepRecord record);

  runtime::Runtime& runtime_;
  EngineParts parts_;
  std::vector<std::unique_ptr<GroupControl>> groups_;  // of the current run; none: each replica for itself
  StepObserver* observer_ = nullptr;
  const HandOutLog* replay_ = nullptr;
  std::mutex observer_mutex_;
  std::atomic<bool> stop_{false};  // the run cannot go on: replicas end at their step's border
  std::atomic<double> first_result_seconds_{-1};
  runtime::TimeNs run_start_ = 0;
};

}  // namespace forebay::engine
