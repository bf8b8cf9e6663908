// Requests that are given up, or fail, before their end.
#include <algorithm>
#include <utility>

#include "engine/choices.h"

namespace forebay::engine {

RequestResult CancelledResult(int64_t id) {
  return {.id = id,
          .http_status = 499,
          .error_type = "request_cancelled",
          .error_message = "the request was cancelled",
          .error_code = kRequestCancelled.name};
}

void Choices::Cancel(const std::function<bool(int64_t id)>& cancelled,
                     std::vector<RequestResult>* finished) {
  const auto in_flight = [](const auto& sequence) { return sequence->in_flight; };
  std::erase_if(states_, [&](const std::unique_ptr<RequestState>& state) {
    const int64_t id = state->request.id;
    if (!cancelled(id) || std::ranges::any_of(state->sequences, in_flight)) return false;
    for (const auto& sequence : state->sequences) Drop(sequence.get());
    finished->push_back(CancelledResult(id));
    return true;
  });
}

void Choices::DropFailed(RequestState* state) {
  for (const auto& sequence : state->sequences) {
    if (sequence->in_flight || sequence->phase == Phase::kFinished) continue;
    Drop(sequence.get());
    sequence->phase = Phase::kFinished;
    --state->unfinished;
  }
}

void Choices::Drop(Sequence* sequence) {
  if (sequence->phase == Phase::kFinished) return;
  lists_.CountDone(sequence->tokens_left());
  if (sequence->phase == Phase::kWaiting) {
    parking_.Forget(sequence);
    lists_.LeaveQueue(sequence);
    return;
  }
  Close(sequence);
  parking_.StopReturning(sequence);
  lists_.StopRunning(sequence);
}

}  // namespace forebay::engine
