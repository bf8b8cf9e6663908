#include "engine/group_control.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace forebay::engine {
namespace {

constexpr double kBackToPull = 1.25;  // times the threshold: so that the mode does not flap

}  // namespace

GroupControl::GroupControl(runtime::Runtime& runtime, const GroupOptions& options)
    : options_(options),
      members_(static_cast<size_t>(options.num_replicas)),
      phase_(options.by_load ? Phase::kFree : Phase::kTogether) {
  FB_CHECK(members_.size() <= share::ShipRows{}.size(), "a group of {} replicas",
           options.num_replicas);
  for (size_t replica = 0; replica < members_.size(); ++replica) {
    members_[replica].woken =
        runtime.NewEvent(fmt::format("what replica {} of the group does next", replica));
  }
}

template <typename Is>
int64_t GroupControl::CountLive(Is is) const {
  return std::ranges::count_if(members_,
                               [&](const Member& member) { return member.live && is(member); });
}

base::Result<Round> GroupControl::Next(int replica, const StepLoad& load) {
  Member& member = members_[static_cast<size_t>(replica)];
  const bool idle = load.rows == 0;
  const runtime::TimeNs patience = idle && !load.ended ? options_.look_every : runtime::kForever;
  {
    const std::lock_guard lock(mutex_);
    FB_CHECK(member.live, "replica {} has left the group", replica);
    member.load = load;
    member.idle = idle;
    if (phase_ == Phase::kFree && !idle) Watch();
  }
  // The first pass acts at once. Later ones come by the event, or when an idle member's patience is
  // over: it then looks whether requests have come, unless an answer came in the same moment.
  for (bool woken = true;; woken = member.woken->Wait(patience)) {
    const std::lock_guard lock(mutex_);
    if (!fault_.ok()) return fault_;
    std::optional<Round> round;
    if (woken || member.answer) {
      round = Act(member);
    } else {
      round = Round{.turn = Turn::kLook};
    }
    // Somebody gave it work: it looks now, and enters with rows when it comes back.
    if (!round && member.called && idle) round = Round{.turn = Turn::kLook};
    if (round) {
      member.idle = member.entered = member.called = false;
      return *round;
    }
    // Under the lock, as all that sets it: what is said from here on is not lost.
    member.woken->Reset();
  }
}

// What the member does now; nothing: it waits. Whoever comes last decides for all, and leaves each
// member its answer, which that member takes when it looks the next time. Joining has two borders:
// first every member hears of it at the end of a step of its own (agreed) and goes on alone, and
// when all have, each enters at its next border, where it waits. So no member can be waited for
// that does not know of the meeting. Idle members have no step to end, and enter at once.
std::optional<Round> GroupControl::Act(Member& member) {
  if (AllEnded()) {
    for (Member& each : members_) Answer(each, {.turn = Turn::kDone});
  }
  if (phase_ == Phase::kJoining) {
    member.agreed = true;
    if (CountLive([](const Member& each) { return !each.agreed; }) == 0) {
      phase_ = Phase::kTogether;
      // who is under way enters at the next border
      for (Member& each : members_) each.entered = each.idle;
    }
  }
  if (phase_ == Phase::kTogether && !member.answer) {
    member.entered = true;
    const bool all = CountLive([](const Member& each) { return !each.entered; }) == 0;
    if (all && CountLive([](const Member& each) { return each.works(); }) > 0) Decide();
  }
  if (member.answer) return std::exchange(member.answer, std::nullopt);
  if (phase_ != Phase::kTogether && !member.idle) return Round{.mode = member.load.wanted};
  return std::nullopt;
}

// Begins to join if the load of all replicas' latest steps was low for long enough.
void GroupControl::Watch() {
  if (!may_meet_ || !options_.by_load) return;
  double rows = 0;
  for (const Member& member : members_) rows += member.live ? member.load.rows : 0;
  const int64_t live = CountLive([](const Member&) { return true; });
  const int64_t working = CountLive([](const Member& each) { return each.works(); });
  // Patience is in steps of each replica that works, so that many replicas do not shorten it.
  calm_steps_ = rows < options_.threshold * static_cast<double>(live) ? calm_steps_ + 1 : 0;
  if (calm_steps_ < options_.patience * working) return;
  // Idle ones have no step at whose border they would hear of it: they are woken.
  phase_ = Phase::kJoining;
  for (Member& member : members_) {
    member.agreed = false;
    member.woken->Set();
  }
}

void GroupControl::Decide() {
  const bool together = ChooseTogether();
  Round round{.number = ++rounds_};
  for (size_t replica = 0; replica < members_.size(); ++replica) {
    if (!members_[replica].live) continue;
    round.rows[replica] = members_[replica].load.rows;
    round.steps[replica] = members_[replica].load.step;
  }
  for (Member& member : members_) {
    round.mode = together ? options_.together : member.load.wanted;
    Answer(member, round);
  }
}

bool GroupControl::ChooseTogether() {
  double rows = 0;
  int32_t most = 0, most_prefill = 0;
  for (const Member& member : members_) {
    if (!member.live) continue;
    rows += member.load.rows;
    most = std::max(most, member.load.rows);
    most_prefill = std::max(most_prefill, member.load.prefill_rows);
  }
  if (options_.flip_every > 0 && rounds_ / static_cast<uint64_t>(options_.flip_every) % 2 == 1)
    return false;
  if (options_.by_load) {
    const int64_t live = CountLive([](const Member&) { return true; });
    // Free from here on; this round still has an answer, each for itself.
    if (rows > kBackToPull * options_.threshold * static_cast<double>(live)) BeFree();
    // A prompt's rows are enough by themselves to be worth a pull.
    if (most_prefill > options_.threshold) return false;
  }
  return phase_ != Phase::kFree && most <= options_.most_rows;
}

void GroupControl::BeFree() {
  phase_ = Phase::kFree;
  calm_steps_ = 0;
}

bool GroupControl::AllEnded() const {
  return CountLive(
             // Who was called has not looked yet, and may find work.
             [](const Member& each) { return !each.idle || !each.load.ended || each.called; }) == 0;
}

// A replica without rows has no part in a step that the others take each for itself.
void GroupControl::Answer(Member& member, const Round& round) {
  if (!member.live) return;
  member.answer = round;
  member.entered = false;
  if (round.turn == Turn::kStep && !round.mode.meets() && member.idle)
    member.answer->turn = Turn::kLook;
  member.woken->Set();
}

void GroupControl::Wake(int replica) {
  const std::lock_guard lock(mutex_);
  members_[static_cast<size_t>(replica)].called = true;
  members_[static_cast<size_t>(replica)].woken->Set();
}

void GroupControl::Leave(int replica) {
  const std::lock_guard lock(mutex_);
  Member& left = members_[static_cast<size_t>(replica)];
  left.live = left.idle = false;
  may_meet_ = false;
  BeFree();
  for (Member& member : members_) {
    // Who waits in a round was promised company that does not come: each takes its step for itself.
    if (member.entered) Answer(member, {.mode = member.load.wanted});
    member.woken->Set();  // the last one may have left
  }
}

void GroupControl::Fail(const base::Status& why) {
  const std::lock_guard lock(mutex_);
  if (fault_.ok()) fault_ = why;
  for (Member& member : members_) member.woken->Set();
}

}  // namespace forebay::engine
