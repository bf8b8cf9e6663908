// Requests that are given up, or fail, before their end, and those of a replica that failed.
#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/choices/choices.h"

namespace forebay::engine {

void Choices::Cancel(const std::function<bool(int64_t id)>& cancelled,
                     std::vector<RequestResult>* finished) {
  std::erase_if(states_, [&](const std::unique_ptr<RequestState>& state) {
    if (!cancelled(state->request.id)) return false;
    state->cancelled = true;
    // With several steps in flight its choices may never be in none of them at once.
    DropLanded(state.get());
    if (state->unfinished > 0) return false;
    finished->push_back(TakeResult(state.get()));
    return true;
  });
}

void Choices::DropLanded(RequestState* state) {
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

void Choices::Leave(Sequence* sequence) {
  parking_.StopReturning(sequence);
  if (sequence->id >= 0) {
    Close(sequence);
    sequence->id = -1;
  } else if (sequence->phase == Phase::kWaiting) {
    parking_.Forget(sequence);
  }
}

std::vector<std::unique_ptr<RequestState>> Choices::GiveBack(const SequenceContext& context,
                                                             std::vector<RequestResult>* finished) {
  DeliverEnded(finished);
  std::vector<std::unique_ptr<RequestState>> returned;
  for (const auto& state : states_) {
    if (state->cancelled || state->failed) {
      state->unfinished = 0;
      finished->push_back(TakeResult(state.get()));
    } else {
      returned.push_back(CopyForAnother(*state, context));
    }
    for (const auto& sequence : state->sequences) Leave(sequence.get());
  }
  std::ranges::move(states_, std::back_inserter(given_back_));
  states_.clear();
  lists_ = ChoiceLists(options_.by_service);
  return returned;
}

void Choices::TakeReturned(std::unique_ptr<RequestState> state) {
  ids_.push_back(state->request.id);
  ++stats_.requests_returned;
  for (const auto& sequence : state->sequences) {
    sequence->let_go_digest = 0;
    if (sequence->phase != Phase::kFinished) Queue(sequence.get());
  }
  states_.push_back(std::move(state));
}

}  // namespace forebay::engine
