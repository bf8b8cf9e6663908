#include "engine/steal_board.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace forebay::engine {

StealBoard::StealBoard(runtime::Runtime& runtime, int replicas, int replicas_per_group)
    : replicas_per_group_(replicas_per_group), members_(static_cast<size_t>(replicas)),
      groups_(static_cast<size_t>((replicas + replicas_per_group - 1) / replicas_per_group)) {
  for (size_t replica = 0; replica < members_.size(); ++replica) {
    members_[replica].woken = runtime.NewEvent(fmt::format("work for replica {}", replica));
  }
}

std::span<StealBoard::Member> StealBoard::MembersOf(size_t group) {
  const auto size = static_cast<size_t>(replicas_per_group_), first = group * size;
  return std::span(members_).subspan(first, std::min(size, members_.size() - first));
}

void StealBoard::SetAsks(int replica, bool asks) {
  Member& member = members_[static_cast<size_t>(replica)];
  if (member.asks == asks || (asks && member.claimed)) return;
  member.asks = asks;
  groups_[GroupOf(replica)].askers += asks ? 1 : -1;
}

bool StealBoard::Done(size_t group) {
  return std::ranges::all_of(MembersOf(group), [](const Member& member) { return !member.live || (member.asks && member.inbox.empty()); });
}

void StealBoard::Ask(int replica) {
  const std::lock_guard lock(mutex_);
  if (members_[static_cast<size_t>(replica)].inbox.empty()) SetAsks(replica, true);
}

StealBoard::Answer StealBoard::Await(int replica, runtime::TimeNs timeout) {
  Member& member = members_[static_cast<size_t>(replica)];
  for (bool waited = false;; waited = true) {
    {
      const std::lock_guard lock(mutex_);
      if (!member.inbox.empty()) return Answer::kGift;
      SetAsks(replica, true);
      if (Done(GroupOf(replica))) {
        for (Member& other : MembersOf(GroupOf(replica))) other.woken->Set();
        return Answer::kDone;
      }
      if (waited) return Answer::kTimeout;
      member.woken->Reset();
    }
    member.woken->Wait(timeout);
  }
}

std::vector<Gift> StealBoard::Collect(int replica) {
  const std::lock_guard lock(mutex_);
  return std::exchange(members_[static_cast<size_t>(replica)].inbox, {});
}

std::optional<int> StealBoard::Claim(int giver) {
  const std::lock_guard lock(mutex_);
  const int first = static_cast<int>(GroupOf(giver)) * replicas_per_group_;
  const int end = std::min(first + replicas_per_group_, static_cast<int>(members_.size()));
  for (int replica = first; replica < end; ++replica) {
    Member& member = members_[static_cast<size_t>(replica)];
    if (!member.asks) continue;
    SetAsks(replica, false);
    member.claimed = true;
    return replica;
  }
  return std::nullopt;
}

void StealBoard::Give(int to, std::vector<Gift> gifts) {
  const std::lock_guard lock(mutex_);
  Member& member = members_[static_cast<size_t>(to)];
  FB_CHECK(member.claimed, "replica {} was not claimed", to);
  member.claimed = false;
  if (gifts.empty() || !member.live) return SetAsks(to, member.live);
  std::ranges::move(gifts, std::back_inserter(member.inbox));
  member.woken->Set();
}

std::vector<Gift> StealBoard::Leave(int replica) {
  const std::lock_guard lock(mutex_);
  Member& member = members_[static_cast<size_t>(replica)];
  SetAsks(replica, false);
  member.live = false;
  // The last one that worked may have left.
  for (Member& other : MembersOf(GroupOf(replica))) other.woken->Set();
  return std::exchange(member.inbox, {});
}

}  // namespace forebay::engine
