// How requests go from the context replicas of a job to its generation replicas, whatever their
// groups. A context replica puts what it has computed here, and lends its KV; a generation replica
// says at its step's border what room it has, and takes what schedule::ChooseTaker gives to it.
// Nobody waits for a taker: where none has room the loans stay, and the context replica has so much
// less for its own. Replicas have the job's numbers.
//
// Invariants:
//  1. A request is held by one replica or lies here; they go in the order in which they came.
//  2. Nothing lies here, and nothing can come, once done().
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/steal_board.h"
#include "forebay/group_role.h"
#include "runtime/runtime.h"
#include "schedule/hand_over.h"

namespace forebay::engine {

inline constexpr base::ErrorCode kRoleLost{"role_lost"};

// Any replica's control task may call.
class HandOverBoard {
 public:
  struct Seat {
    GroupRole role;
    schedule::TakerView room;  // what a generation replica has before it has said
  };
  HandOverBoard(runtime::Runtime& runtime, const std::vector<Seat>& seats);

  void Put(std::vector<Gift> gifts);
  // What is for the generation replica that has `room`.
  std::vector<Gift> Take(int replica, const schedule::TakerView& room);
  // Who takes the first that lies here, as far as is known; -1: none lies here, or none has room.
  int taker() const;
  // Blocks until there may be something for the replica, done(), or `timeout` passes.
  void Await(int replica, runtime::TimeNs timeout);
  // Takes out requests that are given up.
  std::vector<Gift> Withdraw(const std::function<bool(int64_t id)>& cancelled);
  // The replica takes no part any more.
  void Leave(int replica);
  // After all have left: what nobody has taken.
  std::vector<Gift> TakeRest();

  bool done() const;
  // No generation replica is left, so that what lies here, or comes, goes nowhere.
  bool lost() const;

 private:
  struct ReplicaState {
    GroupRole role;
    std::unique_ptr<runtime::Event> woken;
    bool live = true;
  };

  // All below REQUIRE the lock.
  bool AnyLeft(GroupRole role) const;
  // The taker of the first that lies here.
  int Taker() const;
  void WakeTaker();
  void WakeAll();

  mutable std::mutex mutex_;
  std::vector<ReplicaState> replicas_;
  std::vector<schedule::TakerView> rooms_;  // by replica; context ones take nothing
  std::deque<Gift> gifts_;
};

}  // namespace forebay::engine
