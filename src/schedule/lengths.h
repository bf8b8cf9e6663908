// How long answers will be, as far as can be told: from what requests ask for, from the choices
// that have ended, and from those that still run, of which is known that they are longer than they
// are. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace forebay::schedule {

// kMax: as long as the request allows. kMean: as the mean of the answers that became longer than
// this one is. kQuantile: the length that half of the answers which came this far exceed; those
// that still run count as far as they have come (Kaplan and Meier, 1958). kKnown: what the source
// of the requests knows, as a trace does, else as kMax.
enum class LengthPredictor : uint8_t { kMax, kMean, kQuantile, kKnown };

base::Result<LengthPredictor> ParseLengthPredictor(std::string_view text);

class Lengths {
 public:
  explicit Lengths(LengthPredictor predictor);

  LengthPredictor predictor() const { return predictor_; }
  // A choice has ended with so many tokens.
  void Ended(int64_t output);
  // Whether enough has happened since the last Update.
  bool Due();
  // Tokens that the choices have generated which run or wait and have begun.
  void Update(std::span<const int64_t> ages);

  // Tokens that a choice will yet generate which has `generated` some, may generate `room` more,
  // and has `known` to come if that is known, else -1. At least 1 where room is.
  int64_t Left(int64_t generated, int64_t room, int64_t known) const;

 private:
  int64_t LeftByMean(int64_t generated) const;
  int64_t LeftByMedian(int64_t generated) const;

  const LengthPredictor predictor_;
  int64_t ended_ = 0, longest_ = 0;
  int updates_skipped_ = 0;
  bool changed_ = false;
  std::vector<int64_t> counts_;   // of ended choices, by bin of their length
  std::vector<double> sums_;      // of their tokens
  std::vector<int64_t> running_;  // of others, by bin of their age
  std::vector<double> survival_;  // the part that is longer than the bin
  // Over the bins from this one on: ended choices and their tokens.
  std::vector<int64_t> counts_from_;
  std::vector<double> sums_from_;
};

}  // namespace forebay::schedule
