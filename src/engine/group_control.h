// Which way the ranks of a pool take their steps: each on its own with weights that it pulls, or all together with rows that
// go to the weights (SiDP, section 4.3, "consistent mode switching"). One a group of replicas in one process, on any runtime.
//
//   free      everybody pulls, nobody waits; the load is watched
//   joining   together is due; each rank says so at its step's border and goes on pulling until the last one has
//   together  ranks enter a round with their rows; the last to enter decides for all: ship, or pull this once, or be free again
//
// Invariants:
//  1. All ranks get the same answer in a round, with the same rows of all.
//  2. Nobody waits for a rank that has left; without it nobody ships any more, since its weights can still be pulled, but
//     nobody computes with them.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/status.h"
#include "model/ship.h"
#include "runtime/runtime.h"

namespace forebay::engine {

inline constexpr base::ErrorCode kGroupFailed{"group_failed"};

enum class GroupMode : uint8_t { kAuto, kPull, kShip };

struct GroupOptions {
  int num_ranks = 1;
  GroupMode mode = GroupMode::kAuto;
  double threshold = 0;       // B_th: rows a rank below which shipping is due, in kAuto
  int32_t most_rows = 256;    // of a rank in a shipped round
  int patience = 64;          // steps of each working rank in a row with a load below the threshold
  int flip_every = 0;         // a trial of the switch: so many rounds ship, so many pull; 0: no trial
  runtime::TimeNs look_every = 1'000'000;  // how long a rank without work waits before it looks for requests again
};

// What a rank brings to its step's border.
struct RankLoad {
  int32_t rows = 0;
  int32_t prefill_rows = 0;
  bool ended = false;  // without rows: and there will be none
};

// kPull: run the step alone. kShip: run it together, with rows or without. Without rows also kLook: look whether there are
// requests now; kDone: all ranks have ended.
enum class Turn : uint8_t { kPull, kShip, kLook, kDone };

struct Round {
  Turn turn = Turn::kPull;
  uint64_t number = 0;     // of rounds together; 0: none
  model::ShipRows rows{};  // of all ranks, where they ship
};

class GroupControl {
 public:
  GroupControl(runtime::Runtime& runtime, const GroupOptions& options);

  // What `rank` does next; blocks only if ranks run together, or without rows. The error with which the group failed.
  base::Result<Round> Next(int rank, const RankLoad& load);
  // There is something for a rank that may have ended: it is told to look. Before the one that calls has ended.
  void Wake(int rank);
  // The rank takes no more steps.
  void Leave(int rank);
  // The group cannot go on: each Next returns `why`, of the first call.
  void Fail(const base::Status& why);

 private:
  enum class Phase : uint8_t { kFree, kJoining, kTogether };
  struct Member {
    std::unique_ptr<runtime::Event> woken;
    RankLoad load;          // the latest
    bool live = true;
    bool idle = false;      // is in Next, without rows
    bool agreed = false;    // kJoining
    bool entered = false;   // kTogether: is in Next, for the next round
    bool called = false;    // by Wake
    std::optional<Round> answer;

    bool works() const { return live && load.rows > 0; }
  };

  // All below REQUIRE the lock.
  std::optional<Round> Act(Member& member);
  void Watch();
  void Decide();
  Turn Choose();
  void BeFree();
  bool AllEnded() const;
  static void Answer(Member& member, const Round& round);
  template <typename Is>
  int64_t CountLive(Is is) const;

  const GroupOptions options_;
  std::mutex mutex_;
  std::vector<Member> members_;
  Phase phase_;
  bool may_ship_;
  int64_t calm_steps_ = 0;   // of all ranks, in a row
  uint64_t rounds_ = 0;
  base::Status fault_;
};

}  // namespace forebay::engine
