// How replicas that have run out of work get some from others of their group (tail stealing). The one without work asks; one
// that has gives at its step's border; nobody waits for a giver, and nobody is told to give.
//
// The KV cache of a running choice is lent: its blocks stay open in the giver's book, and so as they are, until the one that got
// it has pulled them.
//
// Invariants:
//  1. A request is held by one replica or lies in one inbox.
//  2. A replica that asks holds nothing. At most one giver at a time looks what it has for it.
//  3. A group is done when all that are left ask, nobody looks and no inbox has anything: no gift can come any more.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/sequence.h"
#include "runtime/runtime.h"

namespace forebay::engine {

// KV of a running choice, as far as its rows still see it, in the memory of the replica that gave it.
struct KvLoan {
  int replica = 0;                              // in the group
  kv::SequenceSlot slot = -1;                   // there
  int64_t computed = 0;                         // positions
  std::vector<std::vector<kv::BlockId>> tables; // by KV group
  std::vector<int64_t> first_held;              // by KV group: positions before it are not lent
  std::atomic<bool> over{false};                // nobody reads it any more

  // Of the group that has most.
  int32_t blocks() const {
    int64_t most = 0;
    for (size_t group = 0; group < tables.size(); ++group) {
      most = std::max(most, static_cast<int64_t>(tables[group].size()) - first_held[group] / kv::kBlockTokens);
    }
    return static_cast<int32_t>(most);
  }
};

// All choices of the request wait; what is lent is the KV of its only one.
struct Gift {
  int from = 0;                                 // the replica, among the job's
  std::unique_ptr<RequestState> state;
  std::shared_ptr<KvLoan> loan;                 // null: nothing is computed
};

// Any replica's control task may call.
class StealBoard {
 public:
  StealBoard(runtime::Runtime& runtime, int replicas, int replicas_per_group);

  // REQUIRES: the replica holds nothing, and the job has nothing more for it.
  void Ask(int replica);
  enum class Answer : uint8_t { kGift, kDone, kTimeout };
  // Asks, and blocks until something is there, the group is done, or `timeout` passes.
  Answer Await(int replica, runtime::TimeNs timeout);
  // What has come for the replica.
  std::vector<Gift> Collect(int replica);

  // How many replicas of the giver's group ask; cheap.
  int askers(int giver) const { return groups_[GroupOf(giver)].askers; }
  // For whom `giver` may look what it has: one that asks, or nothing. Give must follow.
  std::optional<int> Claim(int giver);
  // None: the other one goes on asking. If it has left they are lost with it: the run ends.
  void Give(int to, std::vector<Gift> gifts);

  // The replica takes no part any more. Returns what it has not collected.
  std::vector<Gift> Leave(int replica);

 private:
  struct Member {
    std::unique_ptr<runtime::Event> woken;
    bool live = true, asks = false, claimed = false;
    std::vector<Gift> inbox;
  };
  struct Group {
    std::atomic<int> askers{0};
  };

  size_t GroupOf(int replica) const { return static_cast<size_t>(replica / replicas_per_group_); }
  // REQUIRE the lock.
  std::span<Member> MembersOf(size_t group);
  void SetAsks(int replica, bool asks);
  bool Done(size_t group);

  const int replicas_per_group_;
  mutable std::mutex mutex_;
  std::vector<Member> members_;
  std::vector<Group> groups_;
};

}  // namespace forebay::engine
