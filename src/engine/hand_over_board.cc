#include "engine/hand_over_board.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace forebay::engine {
namespace {

schedule::HandedView ViewOf(const Gift& gift) {
  schedule::HandedView view{.choices = gift.state->unfinished};
  for (const auto& loan : gift.loans) view.blocks += loan->blocks();
  return view;
}

}  // namespace

HandOverBoard::HandOverBoard(runtime::Runtime& runtime, const std::vector<Seat>& seats) {
  for (const auto& [role, room] : seats) {
    replicas_.push_back({role, runtime.NewEvent(fmt::format("requests that are handed over to {}",
                                                            replicas_.size()))});
    rooms_.push_back(room);
    rooms_.back().takes = role == GroupRole::kGeneration;
  }
}

bool HandOverBoard::AnyLeft(GroupRole role) const {
  return std::ranges::any_of(
      replicas_, [role](const ReplicaState& state) { return state.live && state.role == role; });
}

int HandOverBoard::Taker() const {
  return gifts_.empty() ? -1 : schedule::ChooseTaker(rooms_, ViewOf(gifts_.front()));
}

int HandOverBoard::taker() const {
  const std::lock_guard lock(mutex_);
  return Taker();
}

void HandOverBoard::WakeTaker() {
  if (const int taker = Taker(); taker >= 0) replicas_[static_cast<size_t>(taker)].woken->Set();
}

void HandOverBoard::WakeAll() {
  for (ReplicaState& state : replicas_) state.woken->Set();
}

void HandOverBoard::Put(std::vector<Gift> gifts) {
  if (gifts.empty()) return;
  const std::lock_guard lock(mutex_);
  for (Gift& gift : gifts) gifts_.push_back(std::move(gift));
  WakeTaker();
}

std::vector<Gift> HandOverBoard::Take(int replica, const schedule::TakerView& room) {
  const std::lock_guard lock(mutex_);
  schedule::TakerView& own = rooms_[static_cast<size_t>(replica)];
  own = room;
  std::vector<Gift> taken;
  // Only the first is ever given: who has no room for it leaves it, and all behind it, to others,
  // so that nobody is passed over for ever.
  while (Taker() == replica) {
    const schedule::HandedView request = ViewOf(gifts_.front());
    own.free_blocks -= request.blocks;
    own.places -= request.choices;
    own.running += request.choices;
    for (const auto& loan : gifts_.front().loans)
      // From here on the giver may wait for it: somebody pulls.
      loan->offered.store(false, std::memory_order_release);
    taken.push_back(std::move(gifts_.front()));
    gifts_.pop_front();
  }
  WakeTaker();
  // That was the last there will ever be: who waits for more is done.
  if (gifts_.empty() && !AnyLeft(GroupRole::kContext)) WakeAll();
  return taken;
}

void HandOverBoard::Await(int replica, runtime::TimeNs timeout) {
  ReplicaState& state = replicas_[static_cast<size_t>(replica)];
  {
    const std::lock_guard lock(mutex_);
    // Looked at under the lock in which the event is reset: what comes later sets it again.
    if (Taker() == replica || (gifts_.empty() && !AnyLeft(GroupRole::kContext))) return;
    state.woken->Reset();
  }
  state.woken->Wait(timeout);
}

std::vector<Gift> HandOverBoard::Withdraw(const std::function<bool(int64_t id)>& cancelled) {
  const std::lock_guard lock(mutex_);
  std::vector<Gift> withdrawn;
  const auto given_up = std::stable_partition(gifts_.begin(), gifts_.end(), [&](const Gift& gift) {
    return !cancelled(gift.state->request.id);
  });
  withdrawn.assign(std::make_move_iterator(given_up), std::make_move_iterator(gifts_.end()));
  gifts_.erase(given_up, gifts_.end());
  WakeTaker();
  if (gifts_.empty() && !AnyLeft(GroupRole::kContext)) WakeAll();
  return withdrawn;
}

void HandOverBoard::Leave(int replica) {
  const std::lock_guard lock(mutex_);
  replicas_[static_cast<size_t>(replica)].live = false;
  rooms_[static_cast<size_t>(replica)].takes = false;
  WakeAll();
}

std::vector<Gift> HandOverBoard::TakeRest() {
  return Withdraw([](int64_t) { return true; });
}

bool HandOverBoard::done() const {
  const std::lock_guard lock(mutex_);
  return gifts_.empty() && !AnyLeft(GroupRole::kContext);
}

bool HandOverBoard::lost() const {
  const std::lock_guard lock(mutex_);
  return !AnyLeft(GroupRole::kGeneration);
}

}  // namespace forebay::engine
