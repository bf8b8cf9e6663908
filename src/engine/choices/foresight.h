// How long choices are expected to become, from the lengths of those that have ended. Kept by the
// replica for its policy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/choices/choice_lists.h"
#include "schedule/lengths.h"

namespace forebay::engine {

class Foresight {
 public:
  // `predictor`: how lengths are foreseen; nothing: they are not. `earlier`: what earlier runs have
  // answered, complete when the first step is planned; null: nothing.
  Foresight(const std::optional<schedule::LengthPredictor>& predictor,
            std::shared_ptr<const std::vector<schedule::EarlierAnswer>> earlier)
      : earlier_(std::move(earlier)) {
    if (predictor) lengths_.emplace(*predictor);
  }
  // The choice has come to its end.
  void Ended(const Sequence& sequence);
  // Before a step is planned: how far those have come that run, or wait and have begun.
  void Update(const ChoiceLists& choices);
  // Tokens that the choice will yet generate; 0 where lengths are not foreseen.
  int64_t ExpectedLeft(const Sequence& sequence) const { return lengths_ ? Foreseen(sequence) : 0; }
  // Mean tokens of prompt and output of the choices that have ended; 0: none has.
  double mean_tokens() const {
    return ended_ > 0 ? static_cast<double>(tokens_) / static_cast<double>(ended_) : 0;
  }

 private:
  int64_t Foreseen(const Sequence& sequence) const;

  std::optional<schedule::Lengths> lengths_;
  std::vector<schedule::BegunAnswer> begun_;  // kept for its capacity
  // until they were told
  std::shared_ptr<const std::vector<schedule::EarlierAnswer>> earlier_;
  int64_t ended_ = 0, tokens_ = 0;
};

}  // namespace forebay::engine
