#include "engine/group_rule.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace forebay::engine {

GroupRule::GroupRule(const GroupOptions& options, std::function<void(int replica)> woken)
    : options_(options),
      woken_(std::move(woken)),
      replicas_(static_cast<size_t>(options.num_replicas)),
      phase_(options.by_load ? Phase::kFree : Phase::kTogether) {
  FB_CHECK(replicas_.size() <= share::ShipRows{}.size(), "a group of {} replicas",
           options.num_replicas);
}

template <typename Is>
int64_t GroupRule::CountLive(Is is) const {
  return std::ranges::count_if(replicas_,
                               [&](const ReplicaState& state) { return state.live && is(state); });
}

void GroupRule::Offer(int replica, const StepOffer& offer) {
  ReplicaState& state = replicas_[static_cast<size_t>(replica)];
  FB_CHECK(state.live, "replica {} has left the group", replica);
  state.offer = offer;
  state.idle = offer.rows == 0;
  if (phase_ == Phase::kFree && !state.idle) Watch();
}

std::optional<Round> GroupRule::Ask(int replica, bool patient) {
  ReplicaState& state = replicas_[static_cast<size_t>(replica)];
  std::optional<Round> round;
  if (patient || state.answer) {
    round = Act(replica);
  } else {
    // It looks whether requests have come, unless an answer came in the same moment.
    round = Round{.turn = Turn::kLook};
  }
  // Somebody gave it work: it looks now, and enters with rows when it comes back.
  if (!round && state.called && state.idle) round = Round{.turn = Turn::kLook};
  if (round) state.idle = state.entered = state.called = false;
  return round;
}

// What the replica does now; nothing: it waits. Whoever comes last decides for all, and leaves each
// replica its answer, which that replica takes when it looks the next time.
std::optional<Round> GroupRule::Act(int replica) {
  ReplicaState& state = replicas_[static_cast<size_t>(replica)];
  if (AllEnded()) {
    for (int each = 0; each < num_replicas(); ++each) Answer(each, {.turn = Turn::kDone});
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

void GroupRule::See() {
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
void GroupRule::Watch() {
  if (!may_meet_ || !options_.by_load) return;
  if (CountLive([](const ReplicaState& each) { return each.unknown(); }) > 0) return;
  See();
  if (!watch_.calm() || !SuitsAll()) return;
  phase_ = Phase::kTogether;
  // Who is under way enters at its next border; idle ones have no step to end.
  for (ReplicaState& each : replicas_) each.entered = each.idle;
}

void GroupRule::Decide() {
  const bool together = ChooseTogether();
  Round round{.number = ++rounds_};
  for (size_t replica = 0; replica < replicas_.size(); ++replica) {
    if (!replicas_[replica].live) continue;
    round.rows[replica] = replicas_[replica].offer.rows;
    round.steps[replica] = replicas_[replica].offer.step;
  }
  for (int replica = 0; replica < num_replicas(); ++replica) {
    round.mode =
        together ? options_.together : replicas_[static_cast<size_t>(replica)].offer.wanted;
    Answer(replica, round);
  }
}

bool GroupRule::ChooseTogether() {
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
bool GroupRule::SuitsAll() const {
  return std::ranges::all_of(replicas_, [&](const ReplicaState& state) {
    // A prompt's rows are enough by themselves to be worth a pull.
    const bool pulls = options_.by_load && state.offer.prefill_rows > watch_.threshold();
    return !state.live || (state.offer.rows <= options_.most_rows && !pulls);
  });
}

void GroupRule::BeFree() {
  phase_ = Phase::kFree;
  watch_.Restart();
}

bool GroupRule::AllEnded() const {
  return CountLive(
             // Who was called has not looked yet, and may find work.
             [](const ReplicaState& each) {
               return !each.idle || !each.offer.ended || each.called;
             }) == 0;
}

// A replica without rows has no part in a step that the others take each for itself.
void GroupRule::Answer(int replica, const Round& round) {
  ReplicaState& state = replicas_[static_cast<size_t>(replica)];
  if (!state.live) return;
  state.answer = round;
  state.entered = false;
  if (round.turn == Turn::kStep && !round.mode.meets() && state.idle)
    state.answer->turn = Turn::kLook;
  woken_(replica);
}

void GroupRule::Wake(int replica) {
  replicas_[static_cast<size_t>(replica)].called = true;
  woken_(replica);
}

void GroupRule::Leave(int replica) {
  ReplicaState& left = replicas_[static_cast<size_t>(replica)];
  left.live = left.idle = false;
  may_meet_ = false;
  BeFree();
  for (int each = 0; each < num_replicas(); ++each) {
    const ReplicaState& state = replicas_[static_cast<size_t>(each)];
    // Who waits in a round was promised company that does not come: each takes its step for itself.
    if (state.entered) Answer(each, {.mode = state.offer.wanted});
    woken_(each);  // the last one may have left
  }
}

}  // namespace forebay::engine
