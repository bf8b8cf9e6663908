#include "sample/select.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "base/rng.h"
#include "sample/testing/rows.h"

namespace forebay::sample {
namespace {

// The first and the last chunk, and each fifth token.
bool IsBanned(size_t token, size_t size) {
  return token % 5 == 2 || token < kChunkTokens || token + kChunkTokens >= size;
}

// What top_p leaves of a row's weights at temperature 1 is found by sums, without candidates.
TEST(SelectTest, DropTailOfRowLeavesWhatDropTailLeaves) {
  std::vector<double> chunk_sums, weights;
  std::vector<Candidate> pool;
  for (const size_t size : {3000, 9001, 40000, 152064}) {
    for (const double spread : {0.05, 1.0, 2.5}) {
      std::vector<float> row = RandomRow(size, size, spread);
      for (const bool bans : {false, true}) {
        for (size_t i = 0; bans && i < size; ++i) row[i] = IsBanned(i, size) ? -kInf : row[i];
        for (const double top_p : {0.5, 0.9, 0.99}) {
          const float max = RowMax(row);
          const double total = SumExp(row, max, 1, &chunk_sums, &weights),
                       limit = (1 - top_p) * total;
          std::vector<Candidate> candidates;
          for (size_t i = 0; i < size; ++i)
            candidates.push_back({static_cast<int32_t>(i), row[i], weights[i]});
          DropTail(&candidates, 0, limit, &pool);
          std::vector<double> expected(size);
          for (const Candidate& candidate : candidates)
            expected[candidate.token] = candidate.weight;

          const double floor = max + Log(limit / static_cast<double>(size)) - 1e-6;
          ASSERT_TRUE(DropTailOfRow({row, max, 1}, total, floor, limit, &weights, &pool))
              << size << " tokens, spread " << spread << ", bans " << bans << ", top_p " << top_p;
          ASSERT_EQ(weights, expected);
        }
      }
    }
  }
}

TEST(SelectTest, DrawsFromAFlatRowWithBansAsAFullSortDoes) {
  constexpr size_t kSize = 20000;
  const std::vector<float> row = RandomRow(kSize, 3, 0.05);
  std::vector<int32_t> banned;
  for (size_t i = 0; i < kSize; ++i) {
    if (IsBanned(i, kSize)) banned.push_back(static_cast<int32_t>(i));
  }
  const SamplingParams params{.top_p = 0.8f};

  std::vector<double> weights(kSize);
  std::vector<int32_t> order;
  float max = -kInf;
  for (size_t i = 0; i < kSize; ++i) {
    if (IsBanned(i, kSize)) continue;
    order.push_back(static_cast<int32_t>(i));
    max = std::max(max, row[i]);
  }
  for (const int32_t token : order) weights[token] = Exp(row[token] - static_cast<double>(max));
  std::ranges::sort(
      order, [&](int32_t a, int32_t b) { return row[a] != row[b] ? row[a] < row[b] : a > b; });
  const double limit = (1 - static_cast<double>(params.top_p)) *
                       std::accumulate(weights.begin(), weights.end(), 0.0);
  double dropped = 0;
  for (const int32_t token : order) {
    dropped += weights[token];
    if (dropped > limit) break;
    weights[token] = 0;
  }
  std::vector<double> sums(kSize);
  std::partial_sum(weights.begin(), weights.end(), sums.begin());

  SampleScratch scratch;
  for (int i = 0; i < 3000; ++i) {
    const SampleInput input{
        .logits = row, .params = &params, .banned = banned, .key = {.seed = 4, .position = i}};
    const int32_t drawn = Sample(input, &scratch).token;
    const double target = base::ToUnitDouble(DrawBits(input.key)) * sums.back();
    ASSERT_FALSE(IsBanned(static_cast<size_t>(drawn), kSize));
    ASSERT_EQ(drawn, std::ranges::upper_bound(sums, target) - sums.begin());
  }
  EXPECT_TRUE(scratch.candidates.empty()) << "no candidates are needed of such a row";
}

}  // namespace
}  // namespace forebay::sample
