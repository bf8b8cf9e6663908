// Choices whose KV comes back from the tier below: they wait there, or begin as others did.
#include <algorithm>

#include "engine/choices.h"

namespace forebay::engine {

// What the view has found may have gone since, and more may have come: others of this step take
// blocks, too.
bool Choices::TakePrefix(Sequence* sequence, int64_t end) {
  return parking_.TakePrefix(sequence, book_, FindCached(sequence).tokens,
                             std::min(end, MaxCached(*sequence)));
}

void Choices::Return(Sequence* sequence) {
  streaming_.MakeRoom(*sequence, sequence->computed, lists_.running());
  book_.FillAdopted(sequence->slot, sequence->computed);
  parking_.Return(sequence, book_);
  returning_.push_back(sequence);
}

// Nobody shares its blocks before they are filled, and no step that is begun later runs before.
void Choices::CommitReturned() {
  for (const Sequence* sequence : returning_) {
    book_.CommitAdopted(sequence->slot,
                        std::span(sequence->tokens).first(static_cast<size_t>(sequence->computed)));
  }
  returning_.clear();
}

}  // namespace forebay::engine
