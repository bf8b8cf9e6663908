#include "engine/request_queue.h"

namespace forebay::engine {

RequestQueue::RequestQueue(runtime::Runtime& runtime, RequestSource& source, ResultSink& sink)
    : source_(source), sink_(sink), free_(runtime.NewEvent("turn at the job's requests")) {}

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

std::optional<Request> RequestQueue::Next(bool wait) {
  if (ended_ || !TakeTurn(wait)) return std::nullopt;
  std::optional<Request> request;
  if (!ended_) request = source_.Next(wait);
  if (!request && source_.ended()) ended_ = true;
  EndTurn();
  return request;
}

bool RequestQueue::Finish(RequestResult result) {
  const std::lock_guard lock(sink_mutex_);
  if (sink_failed_ || !sink_.Finish(std::move(result))) sink_failed_ = true;
  return !sink_failed_;
}

}  // namespace forebay::engine
