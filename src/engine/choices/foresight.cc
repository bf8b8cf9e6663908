#include "engine/choices/foresight.h"

namespace forebay::engine {
namespace {

// Prompts of a template begin with the same full block.
schedule::AnswerKind KindOf(const Sequence& sequence) {
  const bool known = sequence.prompt_tokens >= kv::kBlockTokens && !sequence.prefix_keys.empty();
  return {sequence.prompt_tokens, known ? sequence.prefix_keys[0].low : 0};
}

}  // namespace

void Foresight::Ended(const Sequence& sequence) {
  ++ended_;
  tokens_ += sequence.known();
  if (lengths_) lengths_->Ended(KindOf(sequence), sequence.generated());
}

void Foresight::Update(const ChoiceLists& choices) {
  if (!lengths_) return;
  if (const auto earlier = std::exchange(earlier_, nullptr)) {
    for (const schedule::EarlierAnswer& answer : *earlier)
      lengths_->Ended({.prompt_tokens = answer.prompt_tokens}, answer.output_tokens);
  }
  if (!lengths_->Due()) return;
  begun_.clear();
  for (const Sequence* sequence : choices.running())
    begun_.push_back({KindOf(*sequence), sequence->generated()});
  for (const Sequence* sequence : choices.waiting()) {
    if (sequence->generated() > 0) begun_.push_back({KindOf(*sequence), sequence->generated()});
  }
  lengths_->Update(begun_);
}

int64_t Foresight::Foreseen(const Sequence& sequence) const {
  const int64_t ends_after = sequence.facts.ends_after;
  return lengths_->Left(KindOf(sequence), sequence.generated(), sequence.room(),
                        ends_after > 0 ? ends_after - sequence.generated() : -1);
}

}  // namespace forebay::engine
