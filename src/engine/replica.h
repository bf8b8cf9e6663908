// The ranks that take a step together, seen as one: choices, and one plan a step. A step is
// planned, agreed on with the group, enqueued, and committed when it has ended.
//
// With pipeline stages several steps are in flight, each with choices of its own, so that no stage
// waits for another one's rows: a step reads the weights once, where micro-batches of one step
// would read them once each. Steps end in the order in which they began.
//
// Not thread-safe: one control thread takes requests, steps and finishes. published() may be asked
// for from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "engine/choices/choices.h"
#include "engine/group_control.h"
#include "engine/meters.h"
#include "engine/rank_set.h"
#include "engine/step_routing.h"
#include "forebay/engine.h"
#include "schedule/mode_rule.h"
#include "schedule/policy.h"

namespace forebay::engine {

struct ReplicaOptions {
  ChoicesOptions choices;
  schedule::ModeRule mode;
  uint64_t seed = 0;  // the job's
  runtime::TimeNs stall_timeout = runtime::kForever;
  bool enqueue_waits = false;                      // Backend
  std::shared_ptr<const model::Routing> routing;   // null: data say which experts rows go to
  std::shared_ptr<model::RoutingLog> routing_log;  // null: nobody keeps that
};

enum class StepEnd : uint8_t { kIdle, kBegun, kStepped, kLending, kStalled };

class Replica {
 public:
  Replica(runtime::Runtime& runtime, std::vector<std::unique_ptr<Rank>> ranks,
          std::unique_ptr<schedule::Policy> policy, const ReplicaOptions& options);

  std::span<const std::unique_ptr<Rank>> ranks() const { return ranks_.all(); }
  // Requests come and go between steps.
  Choices& choices() { return choices_; }
  const Choices& choices() const { return choices_; }
  // Takes over a request; what was lent is pulled from the replica that lends it, and is over then.
  // `giver`: that lends it, of the same group, where it may lie below. Errors: the device's, a pull
  // that does not end.
  base::Status Adopt(Gift gift, const Replica* giver = nullptr);

  // Begins a step and commits the oldest one in flight. Requests that came to their end are
  // appended to `finished`. kIdle: nothing runs or waits. kBegun: none was committed, since one
  // more may be begun. kLending: nothing can be begun before a loan is over. kStalled: the policy
  // planned nothing though something waits, or the device did not finish in time, or a loan is not
  // over in time; what_stalled() says so. `record` (null: not wanted) tells of the step that was
  // committed, its times on the runtime's clock.
  StepEnd Step(std::vector<RequestResult>* finished, StepRecord* record);
  const std::string& what_stalled() const { return what_stalled_; }

  // After kStalled: Choices::GiveBack.
  std::vector<std::unique_ptr<RequestState>> GiveBack(const SequenceContext& context,
                                                      std::vector<RequestResult>* finished);

  // From here on steps are taken as the group has it, in which the replica is `number`; null:
  // alone.
  void Join(GroupControl* group, int number) {
    group_ = group;
    number_in_group_ = number;
  }
  // Idle in the group: waits for what there is to do, and serves the others' steps. kDone: all have
  // ended.
  base::Result<Turn> StepIdle(bool ended);

  int index() const { return options_.choices.replica; }
  GroupRole role() const { return options_.choices.role; }
  int64_t steps() const { return begun_; }
  const schedule::Policy& policy() const { return *policy_; }

  struct Published {
    EngineStats stats;
    StepMode mode;  // the latest step's
    ParkCounters park;
    RankSet::TierTraffic tier;
    StreamCounters streaming;
    Meters meters;
  };
  Published published() const { return published_.Get(); }

 private:
  // A step from its plan to its commit.
  struct Flight {
    std::vector<ChoiceRows> rows;
    std::vector<size_t> first_task;  // by `rows`, and the number of all at the end
    std::vector<LogitTask> tasks;
    runtime::TimeNs begin = 0;
    StepRecord record;  // what the plan says
    double priced = 0;  // what it should take, in seconds; 0: nobody asks
  };

  // Fills the sequences of the request that it takes over.
  base::Status PullLoans(Gift& gift, const Replica* giver);
  int64_t in_flight() const { return begun_ - ended_; }
  // The step's index among those that may be in flight.
  int FlightOf(int64_t step) const {
    return static_cast<int>(step % static_cast<int64_t>(flights_.size()));
  }
  // False: the policy has nothing to run now. `share`: only this step's part of the choices.
  base::Result<bool> Begin(bool share);
  // The round in which the planned step is taken: the group decides, and without one the rule.
  base::Result<Round> Agree(const Flight& flight) const;
  // The step's rows in the leader's buffers, and a task for each row of logits.
  void BuildBatch(Flight& flight);
  void RecordPlan(uint64_t bytes_pulled, Flight* flight);
  StepEnd End(std::vector<RequestResult>* finished, StepRecord* record);
  void CommitLogits(Flight& flight, size_t index);
  // Makes the counters what published() gives.
  void Publish();
  StepEnd Stall(std::string what);
  StepEnd WaitForLoans();

  runtime::Runtime& runtime_;
  const std::unique_ptr<schedule::Policy> policy_;
  const ReplicaOptions options_;
  GroupControl* group_ = nullptr;
  int number_in_group_ = 0;
  Round round_;  // the round of the step that was begun last
  Choices choices_;
  StepRouting routing_;
  schedule::StepPlan plan_;      // the plan of the step that is begun
  std::vector<Flight> flights_;  // used in turns
  int64_t begun_ = 0, ended_ = 0;
  runtime::TimeNs last_end_ = 0;  // when the last committed step ended
  EngineStats stats_;             // the steps' time, and the KV that came from others
  Meters meters_;
  schedule::PriceFactor price_factor_;
  // when waiting for loans becomes a stall; -1: nothing waits for them
  runtime::TimeNs lending_until_ = -1;
  std::string what_stalled_;
  base::Guarded<Published> published_;
  RankSet ranks_;  // destroyed first: it waits for the steps in flight, which use what is above
};

}  // namespace forebay::engine
