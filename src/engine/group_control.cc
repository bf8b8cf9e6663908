#include "engine/group_control.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace forebay::engine {
namespace {

constexpr double kBackToPull = 1.25;  // of the threshold: so that the mode does not flap

}  // namespace

GroupControl::GroupControl(runtime::Runtime& runtime, const GroupOptions& options)
    : options_(options), members_(static_cast<size_t>(options.num_ranks)),
      phase_(options.mode == GroupMode::kShip ? Phase::kTogether : Phase::kFree), may_ship_(options.mode != GroupMode::kPull) {
  FB_CHECK(members_.size() <= model::ShipRows{}.size(), "a group of {} ranks", options.num_ranks);
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    members_[rank].woken = runtime.NewEvent(fmt::format("what rank {} of the group does next", rank));
  }
}

template <typename Is>
int64_t GroupControl::CountLive(Is is) const {
  return std::ranges::count_if(members_, [&](const Member& member) { return member.live && is(member); });
}

base::Result<Round> GroupControl::Next(int rank, const RankLoad& load) {
  Member& member = members_[static_cast<size_t>(rank)];
  const bool idle = load.rows == 0;
  const runtime::TimeNs patience = idle && !load.ended ? options_.look_every : runtime::kForever;
  {
    const std::lock_guard lock(mutex_);
    FB_CHECK(member.live, "rank {} has left the group", rank);
    member.load = load;
    member.idle = idle;
    if (phase_ == Phase::kFree && !idle) Watch();
  }
  for (bool woken = true;; woken = member.woken->Wait(patience)) {
    const std::lock_guard lock(mutex_);
    if (!fault_.ok()) return fault_;
    std::optional<Round> round;
    if (woken || member.answer) {
      round = Act(member);
    } else {
      round = Round{.turn = Turn::kLook};
    }
    if (!round && member.called && idle) round = Round{.turn = Turn::kLook};
    if (round) {
      member.idle = member.entered = member.called = false;
      return *round;
    }
    member.woken->Reset();
  }
}

// What the member does now; nothing: it waits.
std::optional<Round> GroupControl::Act(Member& member) {
  if (AllEnded()) {
    for (Member& each : members_) Answer(each, {.turn = Turn::kDone});
  }
  if (phase_ == Phase::kJoining) {
    member.agreed = true;
    if (CountLive([](const Member& each) { return !each.agreed; }) == 0) {
      phase_ = Phase::kTogether;
      for (Member& each : members_) each.entered = each.idle;  // who is under way enters at the next border
    }
  }
  if (phase_ == Phase::kTogether && !member.answer) {
    member.entered = true;
    const bool all = CountLive([](const Member& each) { return !each.entered; }) == 0;
    if (all && CountLive([](const Member& each) { return each.works(); }) > 0) Decide();
  }
  if (member.answer) return std::exchange(member.answer, std::nullopt);
  if (phase_ != Phase::kTogether && !member.idle) return Round{};
  return std::nullopt;
}

// Of the latest step of each rank: is the load below the threshold for long enough?
void GroupControl::Watch() {
  if (!may_ship_ || options_.mode != GroupMode::kAuto) return;
  double rows = 0;
  for (const Member& member : members_) rows += member.live ? member.load.rows : 0;
  const int64_t live = CountLive([](const Member&) { return true; });
  const int64_t working = CountLive([](const Member& each) { return each.works(); });
  calm_steps_ = rows < options_.threshold * static_cast<double>(live) ? calm_steps_ + 1 : 0;
  if (calm_steps_ < options_.patience * working) return;
  phase_ = Phase::kJoining;
  for (Member& member : members_) {
    member.agreed = false;
    member.woken->Set();
  }
}

void GroupControl::Decide() {
  Round round{.turn = Choose(), .number = ++rounds_};
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].live) round.rows[rank] = members_[rank].load.rows;
  }
  for (Member& member : members_) Answer(member, round);
}

Turn GroupControl::Choose() {
  double rows = 0;
  int32_t most = 0, most_prefill = 0;
  for (const Member& member : members_) {
    if (!member.live) continue;
    rows += member.load.rows;
    most = std::max(most, member.load.rows);
    most_prefill = std::max(most_prefill, member.load.prefill_rows);
  }
  if (options_.flip_every > 0 && rounds_ / static_cast<uint64_t>(options_.flip_every) % 2 == 1) return Turn::kPull;
  if (options_.mode == GroupMode::kAuto) {
    const int64_t live = CountLive([](const Member&) { return true; });
    if (rows > kBackToPull * options_.threshold * static_cast<double>(live)) BeFree();
    if (most_prefill > options_.threshold) return Turn::kPull;
  }
  return phase_ == Phase::kFree || most > options_.most_rows ? Turn::kPull : Turn::kShip;
}

void GroupControl::BeFree() {
  phase_ = Phase::kFree;
  calm_steps_ = 0;
}

bool GroupControl::AllEnded() const {
  return CountLive([](const Member& each) { return !each.idle || !each.load.ended || each.called; }) == 0;
}

// Of a round in which others pull, a rank without rows knows nothing.
void GroupControl::Answer(Member& member, const Round& round) {
  if (!member.live) return;
  member.answer = round;
  member.entered = false;
  if (round.turn == Turn::kPull && member.idle) member.answer->turn = Turn::kLook;
  member.woken->Set();
}

void GroupControl::Wake(int rank) {
  const std::lock_guard lock(mutex_);
  members_[static_cast<size_t>(rank)].called = true;
  members_[static_cast<size_t>(rank)].woken->Set();
}

void GroupControl::Leave(int rank) {
  const std::lock_guard lock(mutex_);
  Member& left = members_[static_cast<size_t>(rank)];
  left.live = left.idle = false;
  may_ship_ = false;
  BeFree();
  for (Member& member : members_) {
    if (member.entered) Answer(member, {.turn = Turn::kPull});
    member.woken->Set();  // the last one may have left
  }
}

void GroupControl::Fail(const base::Status& why) {
  const std::lock_guard lock(mutex_);
  if (fault_.ok()) fault_ = why;
  for (Member& member : members_) member.woken->Set();
}

}  // namespace forebay::engine
