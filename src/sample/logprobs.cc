#include <algorithm>
#include <limits>

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

}  // namespace

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
  const double log_sum = max > kNone ? max + Log(SumExp(row, max, 1.0, &scratch->chunk_sums)) : 0;
  const auto logprob = [&](float x) { return static_cast<float>(x - log_sum); };

  PositionLogprobs result;
  MostLikely(row, top_k, scratch);
  bool found = false;
  int32_t rank = 1;
  for (size_t i = 0; i < scratch->candidates.size(); ++i) {
    const Candidate& candidate = scratch->candidates[i];
    if (i > 0 && candidate.logit < scratch->candidates[i - 1].logit)
      rank = static_cast<int32_t>(i) + 1;
    if (candidate.token == token) {
      result.chosen = static_cast<int32_t>(i);
      found = true;
    }
    result.top.push_back({candidate.token, logprob(candidate.logit), rank});
  }
  if (found) return result;
  const float x = Clean(row[token]);
  const auto greater = std::ranges::count_if(row, [&](float other) { return other > x; });
  result.chosen = static_cast<int32_t>(result.top.size());
  result.top.push_back({token, logprob(x), static_cast<int32_t>(greater) + 1});
  return result;
}

}  // namespace forebay::sample
