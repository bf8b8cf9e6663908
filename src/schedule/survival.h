// How long answers become, as those tell that have ended, and those that still run, of which is
// known that they are longer than they are (Kaplan and Meier, 1958). Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace forebay::schedule {

// Tokens that a choice is taken to generate while nothing is known of any.
inline constexpr int64_t kUnknownOutput = 1024;

class Survival {
 public:
  Survival();

  // An answer has ended with so many tokens.
  void Ended(int64_t output);
  int64_t ended() const { return ended_; }
  // The answers that have begun and not ended are told anew: BeginUpdate, Runs of each, EndUpdate.
  void BeginUpdate();
  void Runs(int64_t generated);
  void EndUpdate();

  // Tokens that an answer with `generated` of them will yet have: by the mean of the answers that
  // became longer, and by the length that half of those that came as far exceed.
  int64_t LeftByMean(int64_t generated) const;
  int64_t LeftByMedian(int64_t generated) const;

 private:
  int64_t ended_ = 0, running_answers_ = 0, longest_ = 0;
  std::vector<int64_t> counts_;   // answers that ended, by bin of their length
  std::vector<double> sums_;      // their tokens
  std::vector<int64_t> running_;  // the others, by bin of what they have
  std::vector<double> survival_;  // the part that is longer than the bin
  // Over the bins from this one on: answers that ended and their tokens.
  std::vector<int64_t> counts_from_;
  std::vector<double> sums_from_;
};

}  // namespace forebay::schedule
