#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "sample/sampler.h"
#include "sample/testing/rows.h"

namespace forebay::sample {
namespace {

std::vector<float> RowWithTies(size_t size, uint64_t seed) {
  base::Rng rng(seed);
  std::vector<float> row(size);
  // with ties
  for (float& x : row) x = static_cast<float>(static_cast<int>(rng.Below(4000)) - 2000) / 100.0f;
  return row;
}

TEST(LogprobsTest, AgreesWithAFullSort) {
  SampleScratch scratch;
  for (const size_t size : {1, 5, 64, 1000, 40000}) {
    const std::vector<float> row = RowWithTies(size, size);
    double sum = 0;
    for (const float x : row) sum += std::exp(static_cast<double>(x));
    std::vector<int32_t> order(size);
    for (size_t i = 0; i < size; ++i) order[i] = static_cast<int32_t>(i);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return row[a] > row[b]; });
    for (const int32_t top_k : {0, 1, 5, 20, 999, kAllLogprobs}) {
      for (const int32_t token : {order[0], order[size / 2], order[size - 1]}) {
        const PositionLogprobs got = LogprobsOf(row, token, top_k, &scratch);
        const size_t top = std::min<size_t>(top_k, size);
        ASSERT_EQ(got.top[got.chosen].token, token);
        ASSERT_EQ(got.top.size(), static_cast<size_t>(got.chosen) < top ? top : top + 1);
        for (size_t i = 0; i < got.top.size(); ++i) {
          const auto& [id, logprob, rank] = got.top[i];
          const float logit = row[id];
          ASSERT_TRUE(i >= top || id == order[i]);
          ASSERT_NEAR(logprob, logit - std::log(sum), 2e-6);
          if (i > 30 && i + 30 < got.top.size()) continue;
          ASSERT_EQ(rank, 1 + std::ranges::count_if(row, [&](float x) { return x > logit; }));
        }
      }
    }
  }
}

TEST(LogprobsTest, ValuesThatAreNotFinite) {
  SampleScratch scratch;
  const PositionLogprobs some = LogprobsOf(std::vector<float>{kNan, 1, -kInf, 1}, 0, 4, &scratch);
  ASSERT_EQ(some.top.size(), 4u);
  EXPECT_EQ(some.top[0].token, 1);
  EXPECT_FLOAT_EQ(some.top[1].logprob, std::log(0.5f));
  EXPECT_EQ(some.top[1].rank, 1);
  EXPECT_EQ(some.chosen, 2);
  EXPECT_EQ(some.top[2].logprob, -kInf);
  EXPECT_EQ(some.top[3].rank, 3);

  const PositionLogprobs none = LogprobsOf(std::vector<float>{-kInf, kNan}, 1, 1, &scratch);
  EXPECT_EQ(none.top[0].token, 0);
  EXPECT_EQ(none.top[0].logprob, -kInf);
  EXPECT_EQ(none.top[1].rank, 1);

  const PositionLogprobs huge = LogprobsOf(std::vector<float>{kInf, 1, kInf}, 2, 1, &scratch);
  EXPECT_EQ(huge.top[0].token, 0);
  EXPECT_FLOAT_EQ(huge.top[1].logprob, 0);
}

}  // namespace
}  // namespace forebay::sample
