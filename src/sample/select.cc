#include "sample/select.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace forebay::sample {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
// Below this many candidates sorting is as fast as halving.
constexpr size_t kSortedPool = 512;

}  // namespace

float KthLargest(std::span<const float> row, int64_t k, std::vector<float>* buffer) {
  const auto kth = [&] {
    std::nth_element(buffer->begin(), buffer->begin() + (k - 1), buffer->end(), std::greater<>());
    return (*buffer)[k - 1];
  };
  // The k-th largest of the groups' maxima is a lower bound: k tokens are at least as great.
  float bound = kNone;
  buffer->clear();
  if (2 * k * kGroupTokens <= row.size()) {
    for (size_t begin = 0; begin < row.size(); begin += kGroupTokens)
      buffer->push_back(RowMax(row.subspan(begin, std::min(kGroupTokens, row.size() - begin))));
    bound = kth();
    buffer->clear();
  }
  ForEachAtLeast(row, bound, [&](int32_t, float x) {
    if (x > kNone) buffer->push_back(x);
  });
  return static_cast<int64_t>(buffer->size()) < k ? kNone : kth();
}

void DropTail(std::vector<Candidate>* candidates, double dropped, double limit, std::vector<Candidate>* pool) {
  if (candidates->empty()) return;
  *pool = *candidates;
  // Halve the range of logits around the border: a lower half that fits below the limit is dropped, else the upper
  // half is kept; what remains in the pool is undecided.
  while (pool->size() > kSortedPool) {
    const auto [low, high] = std::ranges::minmax(*pool, {}, &Candidate::logit);
    const float middle = low.logit + (high.logit - low.logit) / 2;
    if (!(middle < high.logit)) break;
    double sum = dropped;
    for (const Candidate& candidate : *pool) {
      if (candidate.logit <= middle) sum += candidate.weight;
    }
    const bool drop_lower = sum <= limit;
    if (drop_lower) dropped = sum;
    std::erase_if(*pool, [&](const Candidate& candidate) { return (candidate.logit <= middle) == drop_lower; });
  }
  std::ranges::sort(*pool, MoreLikely);
  while (pool->size() > 1 && dropped + pool->back().weight <= limit) {
    dropped += pool->back().weight;
    pool->pop_back();
  }
  const Candidate border = pool->back();
  std::erase_if(*candidates, [&](const Candidate& candidate) { return MoreLikely(border, candidate); });
}

}  // namespace forebay::sample
