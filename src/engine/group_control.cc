#include "engine/group_control.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace forebay::engine {

GroupControl::GroupControl(runtime::Runtime& runtime, const GroupOptions& options)
    : options_(options),
      replicas_(static_cast<size_t>(options.num_replicas)),
      phase_(options.by_load ? Phase::kFree : Phase::kTogether) {
  FB_CHECK(replicas_.size() <= share::ShipRows{}.size(), "a group of {} replicas",
           options.num_replicas);
  for (size_t replica = 0; replica < replicas_.size(); ++replica) {
    replicas_[replica].woken =
        runtime.NewEvent(fmt::format("what replica {} of the group does next", replica));
  }
}

template <typename Is>
int64_t GroupControl::CountLive(Is is) const {
  return std::ranges::count_if(replicas_,
                               [&](const ReplicaState& state) { return state.live && is(state); });
}

base::Result<Round> GroupControl::Next(int replica, const StepOffer& offer) {
  ReplicaState& state = replicas_[static_cast<size_t>(replica)];
  const bool idle = offer.rows == 0;
  const runtime::TimeNs patience = idle && !offer.ended ? options_.look_every : runtime::kForever;
  {
    const std::lock_guard lock(mutex_);
    FB_CHECK(state.live, "replica {} has left the group", replica);
    state.offer = offer;
    state.idle = idle;
    if (phase_ == Phase::kFree && !idle) Watch();
  }
  // The first pass acts at once. Later ones come by the event, or when an idle replica's patience
  // is over: it then looks whether requests have come, unless an answer came in the same moment.
  for (bool woken = true;; woken = state.woken->Wait(patience)) {
    const std::lock_guard lock(mutex_);
    if (!fault_.ok()) return fault_;
    std::optional<Round> round;
    if (woken || state.answer) {
      round = Act(state);
    } else {
      round = Round{.turn = Turn::kLook};
    }
    // Somebody gave it work: it looks now, and enters with rows when it comes back.
    if (!round && state.called && idle) round = Round{.turn = Turn::kLook};
    if (round) {
      state.idle = state.entered = state.called = false;
      return *round;
    }
    // Under the lock, as all that sets it: what is said from here on is not lost.
    state.woken->Reset();
  }
}

// What the replica does now; nothing: it waits. Whoever comes last decides for all, and leaves each
// replica its answer, which that replica takes when it looks the next time.
std::optional<Round> GroupControl::Act(ReplicaState& state) {
  if (AllEnded()) {
    for (ReplicaState& each : replicas_) Answer(each, {.turn = Turn::kDone});
  }
  if (phase_ == Phase::kTogether && !state.answer) {
    state.entered = true;
    const bool all = CountLive([](const ReplicaState& each) { return !each.entered; }) == 0;
    if (all && CountLive([](const ReplicaState& each) { return each.works(); }) > 0) Decide();
  }
  if (state.answer) return std::exchange(state.answer, std::nullopt);
  if (phase_ != Phase::kTogether && !state.idle) return Round{.mode = state.offer.wanted};
  return std::nullopt;
}

void GroupControl::See() {
  std::array<int32_t, share::ShipRows{}.size()> rows;
  size_t live = 0;
  for (const ReplicaState& state : replicas_) {
    if (state.live) rows[live++] = state.offer.rows;
  }
  watch_.See(std::span(rows).first(live));
}

// Goes together if the load of all replicas' latest steps was low for long enough. Nobody takes one
// more step alone to hear of it: what such steps cost is what patience has weighed. Whoever still
// reads a prompt that is worth a pull is not waited for.
void GroupControl::Watch() {
  if (!may_meet_ || !options_.by_load) return;
  if (CountLive([](const ReplicaState& each) { return each.unknown(); }) > 0) return;
  See();
  if (!watch_.calm() || !SuitsAll()) return;
  phase_ = Phase::kTogether;
  // Who is under way enters at its next border; idle ones have no step to end.
  for (ReplicaState& each : replicas_) each.entered = each.idle;
}

void GroupControl::Decide() {
  const bool together = ChooseTogether();
  Round round{.number = ++rounds_};
  for (size_t replica = 0; replica < replicas_.size(); ++replica) {
    if (!replicas_[replica].live) continue;
    round.rows[replica] = replicas_[replica].offer.rows;
    round.steps[replica] = replicas_[replica].offer.step;
  }
  for (ReplicaState& state : replicas_) {
    round.mode = together ? options_.together : state.offer.wanted;
    Answer(state, round);
  }
}

bool GroupControl::ChooseTogether() {
  if (options_.flip_every > 0 && rounds_ / static_cast<uint64_t>(options_.flip_every) % 2 == 1)
    return false;
  if (options_.by_load) {
    See();
    // Free from here on; this round still has an answer, each for itself.
    if (watch_.high()) BeFree();
  }
  return phase_ != Phase::kFree && SuitsAll();
}

// Whether a round of the latest steps would be taken together, as far as single ones decide it.
bool GroupControl::SuitsAll() const {
  return std::ranges::all_of(replicas_, [&](const ReplicaState& state) {
    // A prompt's rows are enough by themselves to be worth a pull.
    const bool pulls = options_.by_load && state.offer.prefill_rows > watch_.threshold();
    return !state.live || (state.offer.rows <= options_.most_rows && !pulls);
  });
}

void GroupControl::BeFree() {
  phase_ = Phase::kFree;
  watch_.Restart();
}

bool GroupControl::AllEnded() const {
  return CountLive(
             // Who was called has not looked yet, and may find work.
             [](const ReplicaState& each) {
               return !each.idle || !each.offer.ended || each.called;
             }) == 0;
}

// A replica without rows has no part in a step that the others take each for itself.
void GroupControl::Answer(ReplicaState& state, const Round& round) {
  if (!state.live) return;
  state.answer = round;
  state.entered = false;
  if (round.turn == Turn::kStep && !round.mode.meets() && state.idle)
    state.answer->turn = Turn::kLook;
  state.woken->Set();
}

void GroupControl::Wake(int replica) {
  const std::lock_guard lock(mutex_);
  replicas_[static_cast<size_t>(replica)].called = true;
  replicas_[static_cast<size_t>(replica)].woken->Set();
}

void GroupControl::Leave(int replica) {
  const std::lock_guard lock(mutex_);
  ReplicaState& left = replicas_[static_cast<size_t>(replica)];
  left.live = left.idle = false;
  may_meet_ = false;
  BeFree();
  for (ReplicaState& state : replicas_) {
    // Who waits in a round was promised company that does not come: each takes its step for itself.
    if (state.entered) Answer(state, {.mode = state.offer.wanted});
    state.woken->Set();  // the last one may have left
  }
}

void GroupControl::Fail(const base::Status& why) {
  const std::lock_guard lock(mutex_);
  if (fault_.ok()) fault_ = why;
  for (ReplicaState& state : replicas_) state.woken->Set();
}

}  // namespace forebay::engine
