#include "engine/group_control.h"

namespace forebay::engine {

GroupControl::GroupControl(runtime::Runtime& runtime, const GroupOptions& options)
    : look_every_(options.look_every),
      rule_(options, [this](int replica) { woken_[static_cast<size_t>(replica)]->Set(); }) {
  for (int replica = 0; replica < options.num_replicas; ++replica) {
    woken_.push_back(
        runtime.NewEvent(fmt::format("what replica {} of the group does next", replica)));
  }
}

base::Result<Round> GroupControl::Next(int replica, const StepOffer& offer) {
  runtime::Event& event = *woken_[static_cast<size_t>(replica)];
  const bool looks = offer.rows == 0 && !offer.ended;
  {
    const std::lock_guard lock(mutex_);
    rule_.Offer(replica, offer);
  }
  // The first pass acts at once. Later ones come by the event, or when an idle replica's patience
  // is over.
  for (bool woken = true;; woken = event.Wait(looks ? look_every_ : runtime::kForever)) {
    const std::lock_guard lock(mutex_);
    if (!fault_.ok()) return fault_;
    if (const std::optional<Round> round = rule_.Ask(replica, woken)) return *round;
    // Under the lock, as all that sets it: what is said from here on is not lost.
    event.Reset();
  }
}

void GroupControl::Wake(int replica) {
  const std::lock_guard lock(mutex_);
  rule_.Wake(replica);
}

void GroupControl::Leave(int replica) {
  const std::lock_guard lock(mutex_);
  rule_.Leave(replica);
}

void GroupControl::Fail(const base::Status& why) {
  const std::lock_guard lock(mutex_);
  if (fault_.ok()) fault_ = why;
  for (const auto& event : woken_) event->Set();
}

}  // namespace forebay::engine
