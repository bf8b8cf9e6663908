#include "engine/request_queue.h"

namespace forebay::engine {

RequestQueue::RequestQueue(runtime::Runtime& runtime, int replicas, RequestSource& source, ResultSink& sink)
    : source_(source), sink_(sink), free_(runtime.NewEvent("turn at the job's requests")), held_(replicas) {}

bool RequestQueue::MayTake(int replica, const schedule::Policy& policy) const {
  schedule::QueueView view{.replicas = static_cast<int>(held_.size()), .remaining = source_.remaining(), .held = held_[replica]};
  for (const std::atomic<int64_t>& held : held_) view.held_by_all += held;
  return policy.HandOut(view);
}

bool RequestQueue::TakeTurn(bool wait) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (!taken_) {
        taken_ = true;
        blocked_ = wait;
        return true;
      }
      if (blocked_ && !wait) return false;  // nothing is there: somebody waits for it
      free_->Reset();
    }
    free_->Wait();
  }
}

void RequestQueue::EndTurn() {
  const std::lock_guard lock(mutex_);
  taken_ = blocked_ = false;
  free_->Set();
}

std::optional<Request> RequestQueue::Next(int replica, const schedule::Policy& policy, bool wait) {
  if (ended_ || !TakeTurn(wait)) return std::nullopt;
  std::optional<Request> request;
  if (!ended_ && MayTake(replica, policy)) request = source_.Next(wait);
  if (request) ++held_[replica];
  if (!request && source_.ended()) ended_ = true;
  EndTurn();
  return request;
}

bool RequestQueue::Finish(int replica, RequestResult result) {
  --held_[replica];
  const std::lock_guard lock(sink_mutex_);
  if (sink_failed_ || !sink_.Finish(std::move(result))) sink_failed_ = true;
  return !sink_failed_;
}

}  // namespace forebay::engine
