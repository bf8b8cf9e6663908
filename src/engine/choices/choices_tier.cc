// Choices whose KV was to come back from the tier below, or is read there, and was lost.
#include <algorithm>
#include <span>
#include <vector>

#include "engine/choices/choices.h"

namespace forebay::engine {

void Choices::LoseBelow(const kv::LostBlocks& lost) {
  std::vector<Sequence*> broken;
  parking_.Lose(lost, book_, &broken);
  // It may have ended since, or been given up.
  std::erase_if(broken, [&](Sequence* sequence) {
    return !parking_.StopReturning(sequence) && std::ranges::count(lists_.running(), sequence) == 0;
  });
  streaming_.Lose(lost, lists_.running(), &broken);
  for (Sequence* sequence : broken) {
    sequence->in_flight = false;
    sequence->request->SetGoingOver(false);
    if (sequence->computed_peak == 0 && sequence->first_of_prompt()) {
      sequence->request->cached_tokens -= sequence->computed;
      stats_.cached_prompt_tokens -= sequence->computed;
      sequence->admitted_before = false;
    }
    Close(sequence);
    lists_.StopRunning(sequence);
    sequence->LeaveBook();
    sequence->let_go_digest = 0;
    sequence->expected_rows = sequence->known();
    parking_.Forget(sequence);
    lists_.QueuePreempted(std::span(&sequence, 1));
  }
}

}  // namespace forebay::engine
