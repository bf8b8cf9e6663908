// In which mode the replicas of a pool take their steps: each in its own, with weights that it
// pulls, or all together, with rows that go to the weights (SiDP, section 4.3, "consistent mode
// switching").
// One a group of replicas in one process. The rule alone: GroupControl lets replicas wait for its
// answers, and a forecast (choose/foresee.h) asks it in virtual time.
//
//   free      everybody pulls, nobody waits; the load is watched
//   together  replicas enter a round with their rows, each at its next border; the last to enter
//             decides for all: together, or each for itself this once, or be free again
//
// Invariants:
//  1. All replicas get the same answer in a round, with the same rows of all.
//  2. No replica waits for one that has left. Without that replica the others stop shipping: they
//     can still pull its weights, but no rank computes with them.
//  3. Together begins when all have joined. A replica that others wait for is in a known step.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "layout/group_options.h"
#include "schedule/load_watch.h"
#include "share/ship.h"

namespace forebay::engine {

using layout::GroupOptions;

// What a replica brings to its step's border.
struct StepOffer {
  int32_t rows = 0;
  int32_t prefill_rows = 0;
  bool ended = false;  // without rows: and there will be none
  uint64_t step = 0;   // the number of the step that has the rows
  StepMode wanted;     // in which the replica takes its step where all do not take it together
};

// kStep: take the step in the round's mode; without rows only where that meets. Without rows also
// kLook: look whether there are requests now; kDone: all replicas have ended.
enum class Turn : uint8_t { kStep, kLook, kDone };

struct Round {
  Turn turn = Turn::kStep;
  StepMode mode;             // agreed: `together` for all, or what the replica wanted
  uint64_t number = 0;       // number of the round together; 0: none
  share::ShipRows rows{};    // rows of all replicas, where the mode meets
  share::ShipSteps steps{};  // and the numbers of their steps
};

// Not thread-safe: its caller holds a lock where several replicas ask.
class GroupRule {
 public:
  // `woken` is told of each replica that has something to ask for.
  GroupRule(const GroupOptions& options, std::function<void(int replica)> woken);

  // The replica comes to its border. Asks follow, until one is answered.
  void Offer(int replica, const StepOffer& offer);
  // What the replica does now; nothing: it waits until it is woken. `patient`: false of one without
  // rows that has waited for so long that it looks for requests.
  std::optional<Round> Ask(int replica, bool patient = true);
  // There is something for a replica that may have ended: it is told to look. Before the one that
  // calls has ended.
  void Wake(int replica);
  // The replica takes no more steps.
  void Leave(int replica);

  int num_replicas() const { return static_cast<int>(replicas_.size()); }

 private:
  enum class Phase : uint8_t { kFree, kTogether };
  struct ReplicaState {
    StepOffer offer;  // the latest
    bool live = true;
    bool idle = false;     // asks, without rows
    bool entered = false;  // kTogether: asks, for the next round
    bool called = false;   // by Wake
    std::optional<Round> answer;

    bool works() const { return live && offer.rows > 0; }
    // It has not come yet, or looks for requests.
    bool unknown() const { return offer.rows == 0 && !idle; }
  };

  std::optional<Round> Act(int replica);
  void See();
  void Watch();
  void Decide();
  bool ChooseTogether();
  bool SuitsAll() const;
  void BeFree();
  bool AllEnded() const;
  void Answer(int replica, const Round& round);
  template <typename Is>
  int64_t CountLive(Is is) const;

  const GroupOptions options_;
  const std::function<void(int replica)> woken_;
  schedule::LoadWatch watch_{options_.load};
  std::vector<ReplicaState> replicas_;
  Phase phase_;
  bool may_meet_ = true;
  uint64_t rounds_ = 0;
};

}  // namespace forebay::engine
