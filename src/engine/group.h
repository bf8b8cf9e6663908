// Replicas that share one copy of weights, agree on the modes of their steps, and hand requests on
// to each other at the job's end. The group owns what joins them: the fabric, the agreement, the
// board where gifts lie, and their fate.
//
// Invariants:
//  1. Nobody waits for a replica that has ended or failed: the agreement, the board and, where they
//     share a fate, the fabric are told first. What a failed one held goes back to the job's queue.
//  2. Replicas are numbered within the group here (`replica`); the job's number is the replica's
//     index().
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine_run.h"
#include "engine/group_control.h"
#include "engine/replica.h"
#include "engine/steal_board.h"
#include "layout/group_options.h"
#include "layout/job_groups.h"

namespace forebay::engine {

struct GroupParts {
  GroupRole role = GroupRole::kAll;
  std::vector<std::unique_ptr<fabric::Fabric>> fabrics;  // one a rank; empty: the only rank's
  std::vector<std::unique_ptr<Replica>> replicas;
  // The replicas agree on the mode of each step; nothing: each takes its steps by itself.
  std::optional<layout::GroupOptions> agreement;
  bool steal = true;      // replicas without work get some from the others
  bool one_fate = false;  // they cannot go on without each other
};

class Group {
 public:
  Group(runtime::Runtime& runtime, GroupParts parts)
      : runtime_(runtime), parts_(std::move(parts)) {}
  ~Group();

  GroupRole role() const { return parts_.role; }
  std::span<const std::unique_ptr<Replica>> replicas() const { return parts_.replicas; }

  // Before a run's tasks: agreement and board are as new.
  void Begin();
  // The control task of one replica, until the run ends for it. kStalled: it has failed, and what
  // it held goes to others.
  RunEnd Run(int replica, EngineRun& run);
  // The replica takes no part in the run.
  void Leave(int replica, EngineRun& run);
  // After all tasks.
  void End();
  // Waits until its ranks read nobody's memory any more.
  void Quiesce();

 private:
  Replica& At(int replica) { return *parts_.replicas[static_cast<size_t>(replica)]; }
  // Two ways to live. Agreed: in a round with the others at each step, which serves their steps
  // where it has none of its own. Alone: a step as soon as there is something to do.
  RunEnd RunAgreed(int replica, EngineRun& run);
  RunEnd RunAlone(int replica, EngineRun& run);
  // What both do at a step's border: requests, gifts, and loans that are over come and go. The end
  // of the run, if it is to end; `ended`: the job has nothing more for the replica.
  std::optional<RunEnd> Border(int replica, EngineRun& run, bool wait, bool* ended);
  // One step; the end of the run, if it is to end.
  std::optional<RunEnd> Step(int replica, EngineRun& run, StepEnd* end);
  // Gives to one that asks.
  void GiveAway(int replica, EngineRun& run);
  // A context replica: hands over what it has computed. The error where nobody is left for it.
  base::Status HandOver(Replica& replica, EngineRun& run);
  // A generation replica: takes over what there is room for. `wait`: blocks for it while the
  // replica has nothing to do.
  base::Status TakeOver(Replica& replica, EngineRun& run, bool wait);
  // Takes over what others gave.
  base::Status Receive(int replica);
  // A replica's fault is its group's: nobody waits for it any more.
  RunEnd Stalled(int replica, const std::string& what);

  runtime::Runtime& runtime_;
  const GroupParts parts_;
  std::unique_ptr<GroupControl> control_;  // the run's; null: each for itself
  std::unique_ptr<StealBoard> board_;
  std::atomic<bool> failed_{false};
};

}  // namespace forebay::engine
