// Choosing the most likely tokens of a row without sorting it.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "sample/sampler.h"
#include "sample/softmax.h"

namespace forebay::sample {

// Falling logit, ties by rising id.
inline bool MoreLikely(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

inline constexpr size_t kGroupTokens = 64;

// Calls visit(token, logit) in ascending id for each logit that is at least `lowest`. Groups of 64
// tokens whose maximum is below are skipped as a whole.
template <typename Visit>
void ForEachAtLeast(std::span<const float> row, double lowest, Visit visit) {
  for (size_t begin = 0; begin < row.size(); begin += kGroupTokens) {
    const std::span<const float> group =
        row.subspan(begin, std::min(kGroupTokens, row.size() - begin));
    if (RowMax(group) < lowest) continue;
    for (size_t i = 0; i < group.size(); ++i) {
      if (group[i] >= lowest) visit(static_cast<int32_t>(begin + i), group[i]);
    }
  }
}

// The k-th largest logit; -inf if fewer than k are above it. NaN counts as -inf. REQUIRES: 0 < k.
// `buffer` is scratch.
float KthLargest(std::span<const float> row, int64_t k, std::vector<float>* buffer);

// Drops candidates from the least likely on (of equal logits the highest id first) while their
// running sum of weights is at most `limit`; one always stays. `dropped` is the sum of what was
// left out before. `pool` is scratch. The order of the candidates is kept.
void DropTail(std::vector<Candidate>* candidates, double dropped, double limit,
              std::vector<Candidate>* pool);

// Drops as DropTail does, for a row in which most tokens may stay: clears the weights of dropped
// tokens. It finds the border by sums of weights up to a few logits, not candidate by candidate.
// `weights` are the row's, `total` their sum; those of logits up to `floor` together
// weigh less than `limit`. False (and the weights are spoiled) if a sum comes so near to the limit
// that another order of adding might decide otherwise, or if too many tokens share the border's
// logit.
bool DropTailOfRow(const Weighing& row, double total, double floor, double limit,
                   std::vector<double>* weights, std::vector<Candidate>* pool);

}  // namespace forebay::sample
