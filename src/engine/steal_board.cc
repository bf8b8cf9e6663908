#include "engine/steal_board.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace forebay::engine {

StealBoard::StealBoard(runtime::Runtime& runtime, int replicas)
    : members_(static_cast<size_t>(replicas)) {
  for (size_t replica = 0; replica < members_.size(); ++replica) {
    members_[replica].woken =
        runtime.NewEvent(fmt::format("work for replica {} of the group", replica));
  }
}

void StealBoard::SetAsks(Member& member, bool asks) {
  // Who is claimed waits for one giver: a second must not give to it, too.
  if (member.asks == asks || (asks && member.claimed)) return;
  member.asks = asks;
  askers_ += asks ? 1 : -1;
}

bool StealBoard::Done() const {
  return std::ranges::all_of(members_, [](const Member& member) {
    // Somebody who does not ask may still have work to give, and so may who has a gift that it has
    // not opened.
    return !member.live || (member.asks && member.inbox.empty());
  });
}

void StealBoard::WakeAll() {
  for (Member& member : members_) member.woken->Set();
}

void StealBoard::Ask(int replica) {
  const std::lock_guard lock(mutex_);
  Member& member = members_[static_cast<size_t>(replica)];
  if (member.inbox.empty()) SetAsks(member, true);
}

StealBoard::Answer StealBoard::Await(int replica, runtime::TimeNs timeout) {
  Member& member = members_[static_cast<size_t>(replica)];
  for (bool waited = false;; waited = true) {
    {
      const std::lock_guard lock(mutex_);
      if (!member.inbox.empty()) return Answer::kGift;
      SetAsks(member, true);
      if (Done()) {
        WakeAll();
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

std::optional<int> StealBoard::Claim() {
  const std::lock_guard lock(mutex_);
  const auto asks = std::ranges::find(members_, true, &Member::asks);
  if (asks == members_.end()) return std::nullopt;
  SetAsks(*asks, false);
  asks->claimed = true;
  return static_cast<int>(asks - members_.begin());
}

void StealBoard::Give(int to, std::vector<Gift> gifts) {
  const std::lock_guard lock(mutex_);
  Member& member = members_[static_cast<size_t>(to)];
  FB_CHECK(member.claimed, "replica {} was not claimed", to);
  member.claimed = false;
  // Nothing was worth a move: it asks again.
  if (gifts.empty() || !member.live) return SetAsks(member, member.live);
  std::ranges::move(gifts, std::back_inserter(member.inbox));
  member.woken->Set();
}

std::vector<Gift> StealBoard::Leave(int replica) {
  const std::lock_guard lock(mutex_);
  Member& member = members_[static_cast<size_t>(replica)];
  SetAsks(member, false);
  member.live = false;
  WakeAll();  // the last one that worked may have left
  return std::exchange(member.inbox, {});
}

}  // namespace forebay::engine
