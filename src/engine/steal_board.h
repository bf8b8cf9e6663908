// How the replicas of a group that have run out of work get some from the others (tail stealing).
// The one without work asks; one that has gives at its step's border; nobody waits for a giver, and
// nobody is told to give. Replicas are numbered within the group.
//
// The KV cache of a running choice is lent: its blocks stay open in the giver's book, and so as
// they are, until the one that got it has pulled them.
//
// Invariants:
//  1. A request is held by one replica or lies in one inbox.
//  2. A replica that asks holds nothing. At most one giver at a time looks what it has for it.
//  3. The group is done when all that are left ask, nobody looks and no inbox has anything: no gift
//     can come any more.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/choices/sequence.h"
#include "kv/loan.h"
#include "runtime/runtime.h"

namespace forebay::engine {

// A request that changes replicas; all its choices wait. The loans are the KV cache of choices that
// ran (at most one of a stolen request) or were parked.
struct Gift {
  int from = 0;  // the replica, among the job's
  std::unique_ptr<RequestState> state;
  std::vector<std::shared_ptr<kv::KvLoan>> loans;
  bool handed_over = false;  // from a context replica; else it is stolen
};

// Any replica's control task may call.
class StealBoard {
 public:
  StealBoard(runtime::Runtime& runtime, int replicas);

  // REQUIRES: the replica holds nothing, and the job has nothing more for it.
  void Ask(int replica);
  enum class Answer : uint8_t { kGift, kDone, kTimeout };
  // Asks, and blocks until something is there, the group is done, or `timeout` passes.
  Answer Await(int replica, runtime::TimeNs timeout);
  // What has come for the replica.
  std::vector<Gift> Collect(int replica);

  // How many replicas ask; cheap.
  int askers() const { return askers_; }
  // For whom the caller may look what it has: one that asks, or nothing. Give must follow.
  std::optional<int> Claim();
  // None: the other one goes on asking. Returns the gifts where it has left meanwhile.
  std::vector<Gift> Give(int to, std::vector<Gift> gifts);

  // The replica takes no part any more. Returns the gifts that it has not collected. When the group
  // is done there are none: a replica with a gift has not ended (invariant 3).
  std::vector<Gift> Leave(int replica);

 private:
  struct ReplicaState {
    std::unique_ptr<runtime::Event> woken;
    bool live = true, asks = false, claimed = false;
    std::vector<Gift> inbox;
  };

  // REQUIRE the lock.
  void SetAsks(ReplicaState& state, bool asks);
  bool Done() const;
  void WakeAll();

  mutable std::mutex mutex_;
  std::vector<ReplicaState> replicas_;
  std::atomic<int> askers_{0};
};

}  // namespace forebay::engine
