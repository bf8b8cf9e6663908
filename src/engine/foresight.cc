#include "engine/foresight.h"

namespace forebay::engine {

void Foresight::Ended(const Sequence& sequence) {
  ++ended_;
  tokens_ += sequence.known();
  if (lengths_) lengths_->Ended(sequence.generated());
}

void Foresight::Update(const ChoiceLists& choices) {
  if (!lengths_ || !lengths_->Due()) return;
  ages_.clear();
  for (const Sequence* sequence : choices.running()) ages_.push_back(sequence->generated());
  for (const Sequence* sequence : choices.waiting()) {
    if (sequence->generated() > 0) ages_.push_back(sequence->generated());
  }
  lengths_->Update(ages_);
}

int64_t Foresight::ExpectedLeft(const Sequence& sequence) const {
  if (!lengths_) return 0;
  const int64_t ends_after = sequence.request->request.ends_after;
  return lengths_->Left(sequence.generated(), sequence.room(),
                        ends_after > 0 ? ends_after - sequence.generated() : -1);
}

}  // namespace forebay::engine
