// In which mode the replicas of a pool take their steps: each in its own, with weights that it
// pulls, or all together, with rows that go to the weights (SiDP, section 4.3, "consistent mode
// switching").
// One a group of replicas in one process, on any runtime.
//
//   free      everybody pulls, nobody waits; the load is watched
//   together  replicas enter a round with their rows, each at its next border; the last to enter
//             decides for all: together, or each for itself this once, or be free again
//
// Invariants:
//  1. All replicas get the same answer in a round, with the same rows of all.
//  2. Nobody waits for a replica that has left; without it nobody ships any more, since its weights
//     can still be pulled, but nobody computes with them.
//  3. Together begins where all have come: whoever is waited for is in a step whose rows are known.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/status.h"
#include "layout/group_options.h"
#include "runtime/runtime.h"
#include "schedule/load_watch.h"
#include "share/ship.h"

namespace forebay::engine {

inline constexpr base::ErrorCode kGroupFailed{"group_failed"};

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

class GroupControl {
 public:
  GroupControl(runtime::Runtime& runtime, const GroupOptions& options);

  // What `replica` does next; blocks only if replicas run together, or without rows. The error with
  // which the group failed.
  base::Result<Round> Next(int replica, const StepOffer& offer);
  // There is something for a replica that may have ended: it is told to look. Before the one that
  // calls has ended.
  void Wake(int replica);
  // The replica takes no more steps.
  void Leave(int replica);
  // The group cannot go on: each Next returns `why`, of the first call.
  void Fail(const base::Status& why);

 private:
  enum class Phase : uint8_t { kFree, kTogether };
  struct ReplicaState {
    std::unique_ptr<runtime::Event> woken;
    StepOffer offer;  // the latest
    bool live = true;
    bool idle = false;     // is in Next, without rows
    bool entered = false;  // kTogether: is in Next, for the next round
    bool called = false;   // by Wake
    std::optional<Round> answer;

    bool works() const { return live && offer.rows > 0; }
    // It has not come yet, or looks for requests.
    bool unknown() const { return offer.rows == 0 && !idle; }
  };

  // All below REQUIRE the lock.
  std::optional<Round> Act(ReplicaState& state);
  void See();
  void Watch();
  void Decide();
  bool ChooseTogether();
  bool SuitsAll() const;
  void BeFree();
  bool AllEnded() const;
  static void Answer(ReplicaState& state, const Round& round);
  template <typename Is>
  int64_t CountLive(Is is) const;

  const GroupOptions options_;
  schedule::LoadWatch watch_{options_.load};
  std::mutex mutex_;
  std::vector<ReplicaState> replicas_;
  Phase phase_;
  bool may_meet_ = true;
  uint64_t rounds_ = 0;
  base::Status fault_;
};

}  // namespace forebay::engine
