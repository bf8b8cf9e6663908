#include "engine/steal_board.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace forebay::engine {

StealBoard::StealBoard(runtime::Runtime& runtime, int replicas)
    : replicas_(static_cast<size_t>(replicas)) {
  for (size_t replica = 0; replica < replicas_.size(); ++replica) {
    replicas_[replica].woken =
        runtime.NewEvent(fmt::format("work for replica {} of the group", replica));
  }
}

void StealBoard::SetAsks(ReplicaState& state, bool asks) {
  // Who is claimed waits for one giver: a second must not give to it, too.
  if (state.asks == asks || (asks && state.claimed)) return;
  state.asks = asks;
  askers_ += asks ? 1 : -1;
}

bool StealBoard::Done() const {
  return std::ranges::all_of(replicas_, [](const ReplicaState& state) {
    // Somebody who does not ask may still have work to give, and so may who has a gift that it has
    // not opened.
    return !state.live || (state.asks && state.inbox.empty());
  });
}

void StealBoard::WakeAll() {
  for (ReplicaState& state : replicas_) state.woken->Set();
}

void StealBoard::Ask(int replica) {
  const std::lock_guard lock(mutex_);
  ReplicaState& state = replicas_[static_cast<size_t>(replica)];
  if (state.inbox.empty()) SetAsks(state, true);
}

StealBoard::Answer StealBoard::Await(int replica, runtime::TimeNs timeout) {
  ReplicaState& state = replicas_[static_cast<size_t>(replica)];
  for (bool waited = false;; waited = true) {
    {
      const std::lock_guard lock(mutex_);
      if (!state.inbox.empty()) return Answer::kGift;
      SetAsks(state, true);
      if (Done()) {
        WakeAll();
        return Answer::kDone;
      }
      if (waited) return Answer::kTimeout;
      state.woken->Reset();
    }
    state.woken->Wait(timeout);
  }
}

std::vector<Gift> StealBoard::Collect(int replica) {
  const std::lock_guard lock(mutex_);
  return std::exchange(replicas_[static_cast<size_t>(replica)].inbox, {});
}

std::optional<int> StealBoard::Claim() {
  const std::lock_guard lock(mutex_);
  const auto asks = std::ranges::find(replicas_, true, &ReplicaState::asks);
  if (asks == replicas_.end()) return std::nullopt;
  SetAsks(*asks, false);
  asks->claimed = true;
  return static_cast<int>(asks - replicas_.begin());
}

std::vector<Gift> StealBoard::Give(int to, std::vector<Gift> gifts) {
  const std::lock_guard lock(mutex_);
  ReplicaState& state = replicas_[static_cast<size_t>(to)];
  FB_CHECK(state.claimed, "replica {} was not claimed", to);
  state.claimed = false;
  // Nothing was worth a move: it asks again.
  if (gifts.empty() || !state.live) {
    SetAsks(state, state.live);
    return gifts;
  }
  std::ranges::move(gifts, std::back_inserter(state.inbox));
  state.woken->Set();
  return {};
}

std::vector<Gift> StealBoard::Leave(int replica) {
  const std::lock_guard lock(mutex_);
  ReplicaState& state = replicas_[static_cast<size_t>(replica)];
  SetAsks(state, false);
  state.live = false;
  WakeAll();  // the last one that worked may have left
  return std::exchange(state.inbox, {});
}

}  // namespace forebay::engine
