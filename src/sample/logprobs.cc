#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/check.h"
#include "sample/sampler.h"
#include "sample/select.h"
#include "sample/softmax.h"

namespace forebay::sample {
namespace {

constexpr float kGreatest = std::numeric_limits<float>::max();

// A logit as it counts: NaN is -inf, +inf the greatest float.
float Clean(float x) { return x > kGreatest ? kGreatest : x >= kNone ? x : kNone; }

// The `top_k` most likely tokens of a row without +inf, most likely first, into
// scratch->candidates.
void MostLikely(std::span<const float> row, int64_t top_k, SampleScratch* scratch) {
  std::vector<Candidate>& candidates = scratch->candidates;
  const auto vocabulary = static_cast<int64_t>(row.size());
  top_k = std::min(top_k, vocabulary);
  candidates.clear();
  if (top_k == 0) return;
  const float lowest = top_k < vocabulary ? KthLargest(row, top_k, &scratch->selected) : kNone;
  if (lowest > kNone) {
    ForEachAtLeast(row, lowest, [&](int32_t token, float x) {
      candidates.push_back({token, x, 0});
    });
  } else {
    for (int32_t token = 0; token < vocabulary; ++token)
      candidates.push_back({token, Clean(row[token]), 0});
  }
  std::ranges::nth_element(candidates, candidates.begin() + (top_k - 1), MoreLikely);
  candidates.resize(top_k);
  std::ranges::sort(candidates, MoreLikely);
}

// `top`: the most likely ones, with tokens and logits. `rest`: the logit of a token that is not
// among them, and how many are greater.
template <typename Top, typename Rest>
PositionLogprobs Listed(const Top& top, float max, double sum, int32_t token, Rest rest) {
  const double log_sum = max > kNone ? max + Log(sum) : 0;
  const auto logprob = [&](float x) { return static_cast<float>(x - log_sum); };
  PositionLogprobs result;
  result.chosen = -1;
  int32_t rank = 1;
  for (size_t i = 0; i < top.size(); ++i) {
    if (i > 0 && top[i].logit < top[i - 1].logit) rank = static_cast<int32_t>(i) + 1;
    if (top[i].token == token) result.chosen = static_cast<int32_t>(i);
    result.top.push_back({top[i].token, logprob(top[i].logit), rank});
  }
  if (result.chosen >= 0) return result;
  const auto [x, greater] = rest();
  result.chosen = static_cast<int32_t>(result.top.size());
  result.top.push_back({token, logprob(x), greater + 1});
  return result;
}

}  // namespace

PositionLogprobs LogprobsOf(const kernels::LikelyHead& head, const kernels::LikelyToken* top) {
  return Listed(std::span(top, static_cast<size_t>(head.count)), head.max, head.sum, head.token,
                [&] { return std::pair(head.logit, head.greater); });
}

PositionLogprobs LogprobsOf(std::span<const float> logits, int32_t token, int32_t top_k,
                            SampleScratch* scratch) {
  FB_CHECK(token >= 0 && token < static_cast<int64_t>(logits.size()), "token {} of {}", token,
           logits.size());
  float max = RowMax(logits);
  std::span<const float> row = logits;
  if (max > kGreatest) {
    scratch->processed.assign(logits.begin(), logits.end());
    for (float& x : scratch->processed) x = Clean(x);
    row = scratch->processed;
    max = kGreatest;
  }
  const double sum = max > kNone ? SumExp(row, max, 1.0, &scratch->chunk_sums) : 0;
  MostLikely(row, top_k, scratch);
  return Listed(scratch->candidates, max, sum, token, [&] {
    const float x = Clean(row[token]);
    const auto greater = std::ranges::count_if(row, [&](float other) { return other > x; });
    return std::pair(x, static_cast<int32_t>(greater));
  });
}

}  // namespace forebay::sample
