// Estimates how long answers become, from ended answers and from running ones, which are known only
// to become longer than they are now (Kaplan and Meier, 1958). Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace forebay::schedule {

// Tokens that a choice is taken to generate while nothing is known of any.
inline constexpr int64_t kUnknownOutput = 1024;

class Survival {
 public:
  Survival();

  // An answer has ended with `output` tokens.
  void Ended(int64_t output);
  int64_t ended() const { return ended_; }
  // The answers that have begun and not ended are told anew: BeginUpdate, Runs of each, EndUpdate.
  void BeginUpdate();
  void Runs(int64_t generated);
  void EndUpdate();

  // The tokens that an answer with `generated` ones has still to come: by the mean of the answers
  // that became longer, and by the median length of the answers that came this far.
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
