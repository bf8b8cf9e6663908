#include "sample/sampler.h"
#include "sample/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "base/rng.h"
#include "sample/testing/rows.h"

namespace forebay::sample {
namespace {

int32_t Draw(std::span<const float> row, const SamplingParams& params, const SampleKey& key) {
  static thread_local SampleScratch scratch;
  return Sample({.logits = row, .params = &params, .key = key}, &scratch).token;
}

// Results of seeded jobs depend on these values (computed apart, by a Python script of the same
// rule).
TEST(DrawBitsTest, PinnedValues) {
  EXPECT_EQ(DrawBits({}), 0xDDB48AFB77E002A3ull);
  EXPECT_EQ(DrawBits({.has_request_seed = true, .seed = 1, .choice = 2, .position = 3}),
            0x754184B497C41E00ull);
  EXPECT_EQ(DrawBits({.seed = 1, .line = 2, .choice = 3, .position = 4}), 0x89035A18C7FBCDCull);
}

TEST(DrawBitsTest, EachFieldCounts) {
  std::set<uint64_t> seen;
  int keys = 0;
  for (bool request : {false, true}) {
    for (uint64_t seed : {0, 1, 2}) {
      for (int64_t line : {0, 1, 2}) {
        for (int32_t choice : {0, 1, 2}) {
          for (int64_t position : {0, 1, 2}) {
            if (request && line > 0) continue;
            seen.insert(DrawBits({request, seed, line, choice, position}));
            ++keys;
          }
        }
      }
    }
  }
  EXPECT_EQ(static_cast<int>(seen.size()), keys);
  EXPECT_EQ(DrawBits({true, 5, 1, 0, 9}), DrawBits({true, 5, 2, 0, 9}))
      << "a request's seed stands for itself";
}

// Chi-square of the draws of `keys` against the distribution, tokens of small expectation taken
// together. Under a true sampler (statistic - freedom) / sqrt(2 freedom) is about normal.
void ExpectDrawsFollowDistribution(std::span<const float> row, const SamplingParams& params,
                                   const std::function<SampleKey(int)>& key_of, int keys) {
  SampleScratch scratch;
  const Distribution distribution =
      ProcessedDistribution({.logits = row, .params = &params}, &scratch);
  std::map<int32_t, int> drawn;
  for (int i = 0; i < keys; ++i) ++drawn[Draw(row, params, key_of(i))];
  double statistic = 0, expected = 0, sum = 0;
  int freedom = -1, observed = 0;
  for (size_t i = 0; i < distribution.tokens.size(); ++i) {
    sum += distribution.probabilities[i];
    expected += distribution.probabilities[i] * keys;
    const auto it = drawn.find(distribution.tokens[i]);
    if (it != drawn.end()) {
      observed += it->second;
      drawn.erase(it);
    }
    if (expected < 20 && i + 1 < distribution.tokens.size()) continue;
    if (expected > 0) statistic += (observed - expected) * (observed - expected) / expected;
    ++freedom;
    expected = 0;
    observed = 0;
  }
  EXPECT_TRUE(drawn.empty()) << "token " << drawn.begin()->first << " was drawn and not kept";
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_LT((statistic - freedom) / std::sqrt(2.0 * freedom), 5)
      << statistic << " with " << freedom;
  EXPECT_GT((statistic - freedom) / std::sqrt(2.0 * freedom), -5)
      << statistic << " with " << freedom;
}

TEST(SampleTest, DrawsFollowTheDistribution) {
  const std::vector<float> row = RandomRow(1500, 5, 2);
  const SamplingParams plain{.temperature = 0.8f}, top_p{.top_p = 0.9f}, top_k{.top_k = 40},
      all{.temperature = 1.3f, .top_p = 0.8f, .top_k = 300, .min_p = 0.01f};
  for (const SamplingParams* params : {&plain, &top_p, &top_k, &all}) {
    ExpectDrawsFollowDistribution(
        row, *params, [](int i) { return SampleKey{.seed = 3, .line = 7, .position = i}; },
        params == &plain ? 100000 : 20000);
  }
  ExpectDrawsFollowDistribution(
      row, plain, [](int i) { return SampleKey{.seed = 3, .line = i, .position = 9}; }, 20000);
  ExpectDrawsFollowDistribution(
      row, plain,
      [](int i) {
        return SampleKey{.has_request_seed = true, .seed = 3, .choice = i, .position = 9};
      },
      20000);
}

// The token drawn is the one in whose stretch of the cumulative sum the key's uniform number lies.
TEST(SampleTest, DrawsInvertTheCumulativeSum) {
  const std::vector<float> row = RandomRow(5000, 13, 1.5);
  const SamplingParams plain{.temperature = 0.9f}, filtered{.temperature = 0.9f, .top_p = 0.97f};
  SampleScratch scratch;
  for (const SamplingParams* params : {&plain, &filtered}) {
    const Distribution distribution =
        ProcessedDistribution({.logits = row, .params = params}, &scratch);
    for (int i = 0; i < 2000; ++i) {
      const SampleKey key{.seed = 21, .position = i};
      const double uniform = base::ToUnitDouble(DrawBits(key));
      const int32_t drawn = Draw(row, *params, key);
      double sum = 0;
      size_t next = 0;
      while (distribution.tokens[next] != drawn) sum += distribution.probabilities[next++];
      ASSERT_GE(uniform, sum - 1e-12);
      ASSERT_LE(uniform, sum + distribution.probabilities[next] + 1e-12);
    }
  }
}

// Tokens of two choices at equal positions are independent: a table of 8 x 8 is as full as the
// product of its margins.
TEST(SampleTest, ChoicesAreIndependent) {
  const std::vector<float> row(8, 0.0f);
  const SamplingParams params;
  constexpr int kDraws = 64000;
  int table[8][8] = {};
  for (int i = 0; i < kDraws; ++i) {
    const SampleKey first{.has_request_seed = true, .seed = 11, .choice = 0, .position = i};
    SampleKey second = first;
    second.choice = 1;
    ++table[Draw(row, params, first)][Draw(row, params, second)];
  }
  double statistic = 0;
  for (const auto& line : table) {
    for (const int count : line) statistic += (count - 1000.0) * (count - 1000.0) / 1000.0;
  }
  EXPECT_LT((statistic - 63) / std::sqrt(126.0), 5);
}

TEST(SampleTest, TheSameKeyGivesTheSameTokenWhateverTheScratchHeld) {
  const std::vector<float> row = RandomRow(3000, 6, 3), other = RandomRow(9000, 7, 1);
  const SamplingParams params{.temperature = 1.1f, .top_p = 0.95f, .logprobs = 5};
  SampleScratch fresh, used;
  int differing = 0;
  for (int i = 0; i < 200; ++i) {
    const SampleInput input{.logits = row, .params = &params, .key = {.seed = 1, .position = i}};
    Sample({.logits = other, .params = &params, .key = {.seed = 2, .position = i}}, &used);
    const SampleOutput a = Sample(input, &fresh), b = Sample(input, &used);
    ASSERT_EQ(a.token, b.token);
    ASSERT_EQ(a.logprobs.top[a.logprobs.chosen].token, a.token);
    differing += i > 0 && a.token != Draw(row, params, {.seed = 1, .position = i - 1});
  }
  EXPECT_GT(differing, 100);
}

// The kept set of top_p by its definition: sort, and drop from the low end.
TEST(SampleTest, TopPAgreesWithAFullSort) {
  SampleScratch scratch;
  base::Rng rng(8);
  for (int round = 0; round < 60; ++round) {
    std::vector<float> row =
        RandomRow(1 + rng.Below(20000), round, std::exp(rng.Uniform() * 6 - 4));
    if (round % 3 == 0) {
      for (float& x : row) x = std::round(x * 4) / 4;  // many ties
    }
    const float top_p = round % 7 == 0   ? 1e-6f
                        : round % 7 == 1 ? 0.9999999f
                        : round % 7 == 2 ? 0.0f
                                         : static_cast<float>(rng.Uniform());
    const SamplingParams params{.top_p = top_p};
    const Distribution got = ProcessedDistribution({.logits = row, .params = &params}, &scratch);
    std::vector<int32_t> order(row.size());
    for (size_t i = 0; i < row.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::ranges::sort(
        order, [&](int32_t a, int32_t b) { return row[a] != row[b] ? row[a] < row[b] : a > b; });
    const double max = row[order.back()];
    long double total = 0, sum = 0;
    for (const float x : row) total += std::exp(static_cast<long double>(x) - max);
    const long double limit = (1.0L - params.top_p) * total;
    size_t dropped = 0;
    if (top_p == 0) dropped = order.size() - 1;
    while (top_p > 0 && dropped + 1 < order.size()) {
      sum += std::exp(static_cast<long double>(row[order[dropped]]) - max);
      if (sum > limit) break;
      ++dropped;
    }
    // The sums may be rounded to either side of the limit: one token more or less where it lies
    // that near.
    ASSERT_NEAR(static_cast<double>(got.tokens.size()), static_cast<double>(order.size() - dropped),
                std::fabs(static_cast<double>((sum - limit) / total)) < 1e-9 ? 1 : 0)
        << "round " << round << " top_p " << top_p << " of " << row.size();
    std::vector<int32_t> kept(order.end() - static_cast<int64_t>(got.tokens.size()), order.end());
    std::ranges::sort(kept);
    ASSERT_EQ(got.tokens, kept);
    // The weights of what stays are added in ascending id, however the border was found.
    const auto weight = [&](int32_t token) { return Exp(static_cast<double>(row[token]) - max); };
    double kept_sum = 0;
    for (const int32_t token : kept) kept_sum += weight(token);
    for (size_t i = 0; i < kept.size(); ++i)
      ASSERT_EQ(got.probabilities[i], weight(kept[i]) / kept_sum);
  }
}

// Where the running sum meets the limit exactly the tokens up to there go, as the order of sums has
// it.
TEST(SampleTest, TopPOfEqualLogits) {
  SampleScratch scratch;
  for (const size_t size : {2, 64, 1000, 4096, 70000}) {
    const std::vector<float> row(size, -3.5f);
    const SamplingParams params{.top_p = 0.5f};
    const Distribution got = ProcessedDistribution({.logits = row, .params = &params}, &scratch);
    ASSERT_EQ(got.tokens.size(), size / 2);
    EXPECT_EQ(got.tokens.back(), static_cast<int32_t>(size / 2) - 1);
  }
}

TEST(SampleTest, TopKKeepsTiesInLargeRows) {
  SampleScratch scratch;
  std::vector<float> row = RandomRow(50000, 9, 2);
  for (const int32_t k : {1, 2, 50, 400, 30000}) {
    std::vector<float> sorted = row;
    std::ranges::sort(sorted, std::greater<>());
    const float border = sorted[k - 1];
    for (size_t i = 1000; i < 1005; ++i) row[i * 7] = border;
    const SamplingParams params{.top_k = k};
    const Distribution got = ProcessedDistribution({.logits = row, .params = &params}, &scratch);
    std::ranges::copy(row, sorted.begin());
    std::ranges::sort(sorted, std::greater<>());
    const auto expected = std::ranges::count_if(row, [&](float x) { return x >= sorted[k - 1]; });
    ASSERT_EQ(static_cast<int64_t>(got.tokens.size()), expected);
    ASSERT_TRUE(std::ranges::all_of(got.tokens,
                                    [&](int32_t token) { return row[token] >= sorted[k - 1]; }));
  }
}

TEST(SampleTest, ValuesThatAreNotFinite) {
  const SamplingParams greedy{.temperature = 0}, plain,
      filtered{.top_p = 0.9f, .top_k = 2, .min_p = 0.1f};
  for (const SamplingParams* params : {&greedy, &plain, &filtered}) {
    for (int i = 0; i < 50; ++i) {
      const SampleKey key{.position = i};
      EXPECT_EQ(Draw(std::vector<float>{kNan, -kInf, 3, kNan}, *params, key), 2);
      EXPECT_EQ(Draw(std::vector<float>{-kInf, kNan}, *params, key), 0);
      EXPECT_EQ(Draw(std::vector<float>{5, kInf, -kInf}, *params, key), 1);
    }
  }
}

TEST(SampleTest, ATinyTemperatureIsGreedy) {
  const std::vector<float> row = RandomRow(1000, 10, 3);
  const SamplingParams greedy{.temperature = 0};
  for (const float temperature : {1e-45f, 1e-30f, 1e-5f}) {
    for (const float top_p : {1.0f, 0.5f}) {
      const SamplingParams params{.temperature = temperature, .top_p = top_p};
      for (int i = 0; i < 20; ++i)
        EXPECT_EQ(Draw(row, params, {.position = i}), Draw(row, greedy, {}));
    }
  }
}

TEST(SampleTest, ATinyTopPIsGreedy) {
  const SamplingParams greedy{.temperature = 0};
  for (const double spread : {0.1, 3.0}) {
    const std::vector<float> row = RandomRow(320, 4, spread);
    for (const float top_p : {1e-45f, 1e-20f, 1e-16f}) {
      const SamplingParams params{.top_p = top_p};
      for (int i = 0; i < 20; ++i)
        EXPECT_EQ(Draw(row, params, {.position = i}), Draw(row, greedy, {}));
    }
  }
}

TEST(SampleTest, BannedAndForeignIds) {
  const std::vector<float> row = {1, 9, 5};
  SampleScratch scratch;
  SamplingParams params{.temperature = 0, .logit_bias = {{-1, 5.0f}, {3, 100.0f}, {0, 2.0f}}};
  const int32_t banned[] = {1, 77};
  TokenCounts counts;
  counts.AddPrompt(std::vector<int32_t>{99, 2});
  params.repetition_penalty = 2;
  EXPECT_EQ(
      Sample({.logits = row, .params = &params, .counts = &counts, .banned = banned}, &scratch)
          .token,
      0);
  EXPECT_EQ(Sample({.logits = row, .params = &params, .counts = &counts}, &scratch).token, 1);
  // What bans all that is allowed bans nothing.
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplingParams one{.temperature = temperature, .allowed_token_ids = {1}};
    EXPECT_EQ(Sample({.logits = row, .params = &one, .banned = banned}, &scratch).token, 1);
  }
}

// Prints what one row of 152K logits costs; nothing is asserted, machines differ.
TEST(SampleTest, AllowedTokensAlone) {
  SamplingParams params;
  params.allowed_token_ids = {1, 3};
  params.logit_bias = {{0, 100.0f}, {3, 1.0f}};
  const std::vector<float> logits = {9, 1, 8, 2};
  SampleScratch scratch;
  for (const float temperature : {0.0f, 1.0f}) {
    params.temperature = temperature;
    const Distribution kept =
        ProcessedDistribution({.logits = logits, .params = &params}, &scratch);
    EXPECT_EQ(kept.tokens,
              temperature == 0 ? std::vector<int32_t>{3} : std::vector<int32_t>({1, 3}));
  }
}

TEST(SampleTest, ABadWordIsBannedBehindItsBegin) {
  const std::vector<std::vector<int32_t>> bad_words = {{5}, {7, 8}, {1, 7, 9}};
  const auto banned = [&](const std::vector<int32_t>& generated) {
    std::vector<int32_t> ids;
    AppendBanned(bad_words, generated, &ids);
    return ids;
  };
  EXPECT_EQ(banned({}), std::vector<int32_t>({5}));
  EXPECT_EQ(banned({7}), std::vector<int32_t>({5, 8}));
  EXPECT_EQ(banned({1, 7}), std::vector<int32_t>({5, 8, 9}));
  EXPECT_EQ(banned({7, 1}), std::vector<int32_t>({5}));
}

TEST(SampleTest, Speed) {
  const std::vector<float> row = RandomRow(152000, 11, 2.5), flat = RandomRow(152000, 12, 0.05);
  SampleScratch scratch;
  const auto time = [&](const char* what, const std::vector<float>& logits,
                        const SamplingParams& params) {
    double best = 1e9;
    for (int i = 0; i < 10; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      Sample({.logits = logits, .params = &params, .key = {.position = i}}, &scratch);
      const auto elapsed = std::chrono::steady_clock::now() - begin;
      best = std::min(best, std::chrono::duration<double, std::micro>(elapsed).count());
    }
    std::printf("%-28s %8.1f us a row\n", what, best);
  };
  time("greedy", row, {.temperature = 0});
  time("temperature", row, {.temperature = 0.7f});
  time("temperature, top_p", row, {.temperature = 0.7f, .top_p = 0.9f});
  time("top_p of a flat row", flat, {.top_p = 0.9f});
  time("top_k 50", row, {.top_k = 50});
  time("top_k 50, top_p", row, {.top_p = 0.95f, .top_k = 50});
  time("min_p", row, {.min_p = 0.05f});
  time("greedy, logprobs 5", row, {.temperature = 0, .logprobs = 5});
  time("greedy, all logprobs", row, {.temperature = 0, .logprobs = kAllLogprobs});
}

}  // namespace
}  // namespace forebay::sample
