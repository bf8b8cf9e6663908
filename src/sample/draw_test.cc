// Draws by kernels (kernels/draw.h) have the tokens of sample/sampler.h, in each of the launcher's
// schedules.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/cuda/testing/watched_context.h"
#include "runtime/flush_denormals.h"
#include "sample/sampler.h"
#include "sample/softmax.h"
#include "sample/testing/rows.h"

namespace forebay::sample {
namespace {

using kernels::cuda::testing::TheLauncher;
using kernels::cuda::testing::WatchedContext;

constexpr int32_t kPoison = -7;

struct Draw {
  std::vector<float> logits;
  SamplingParams params;
  std::string what;
};

SampleKey KeyOf(size_t row) { return {.seed = 11, .position = static_cast<int64_t>(row)}; }

// Rows of the step in front of the logits.
constexpr int32_t kFirstRow = 3;

kernels::DrawRow DrawOf(const SampleInput& input, size_t row, size_t sequence) {
  return {.unit = base::ToUnitDouble(DrawBits(input.key)),
          .temperature = input.params->temperature,
          .min_p = input.params->min_p,
          .top_p = input.params->top_p,
          .top_k = input.params->top_k,
          .row = kFirstRow + static_cast<int32_t>(row),
          .sequence = static_cast<int32_t>(sequence)};
}

// All in one launch; every other row of the logits is nobody's. REQUIRES: rows of one vocabulary.
void ExpectHostsTokens(const std::vector<Draw>& rows) {
  runtime::SetFlushDenormals(true);
  const size_t vocab = rows[0].logits.size(), stride = vocab + 3;
  std::vector<float> logits(rows.size() * 2 * stride, kInf);
  std::vector<kernels::DrawRow> draws;
  std::vector<int32_t> tokens, drawn(rows.size()), sampled(rows.size());
  SampleScratch scratch;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& [row, params, what] = rows[i];
    std::ranges::copy(row, logits.begin() + static_cast<std::ptrdiff_t>(2 * i * stride));
    const SampleInput input{.logits = row, .params = &params, .key = KeyOf(i)};
    ASSERT_TRUE(IsPlain(input)) << what;
    tokens.push_back(AllNan(row) ? kernels::kNothingDrawn : Sample(input, &scratch).token);
    draws.push_back(DrawOf(input, 2 * i, rows.size() - 1 - i));
  }
  const auto weighs = [](const kernels::DrawRow& draw) { return draw.temperature > 0; };
  const kernels::DrawRowsArgs args{
      .logits = logits.data(),
      .stride = static_cast<int64_t>(stride),
      .vocab = static_cast<int32_t>(vocab),
      .first_row = kFirstRow,
      .num_draws = static_cast<int32_t>(rows.size()),
      .weighed_draws = static_cast<int32_t>(std::ranges::count_if(draws, weighs)),
      .draws = draws.data(),
      .drawn = drawn.data(),
      .sampled = sampled.data()};
  // The emulation runs a schedule a call, another each time. A GPU reads these logits over its link
  // to the host.
  constexpr size_t kLargeVocab = 10000;
  static int schedule = 0;
  const int first = schedule;
  schedule += !TheLauncher().fast() ? 1 : vocab >= kLargeVocab ? 2 : TheLauncher().launches();
  for (int launch = first; launch < schedule; ++launch) {
    std::ranges::fill(drawn, kPoison);
    std::ranges::fill(sampled, kPoison);
    const base::Status status =
        TheLauncher().Run(launch, [&](const device::LaunchContext& context) {
          kernels::cuda::PairKernels().draw_rows(args, context);
        });
    ASSERT_TRUE(status.ok()) << "launch " << launch << ": " << status.ToString();
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(drawn[i], tokens[i]) << "launch " << launch << ", vocabulary " << vocab << ", row "
                                     << i << ": " << rows[i].what;
      EXPECT_EQ(sampled[rows.size() - 1 - i], tokens[i] < 0 ? kPoison : tokens[i])
          << "launch " << launch << ", row " << i;
    }
  }
  runtime::SetFlushDenormals(false);
}

std::vector<std::pair<std::string, SamplingParams>> AllParams(size_t vocab) {
  std::vector<std::pair<std::string, SamplingParams>> all;
  const auto add = [&](float temperature, int32_t top_k, float top_p, float min_p) {
    all.emplace_back(
        fmt::format("temperature {} top_k {} top_p {} min_p {}", temperature, top_k, top_p, min_p),
        SamplingParams{.temperature = temperature, .top_p = top_p, .top_k = top_k, .min_p = min_p});
  };
  const auto k = static_cast<int32_t>(vocab);
  add(0, 0, 1, 0);
  add(1, 0, 1, 0);
  add(0.3f, 0, 1, 0);
  add(2, 0, 1, 0);
  add(1e-30f, 0, 1, 0);
  add(1e-40f, 0, 1, 0);  // a denormal
  for (const int32_t top_k : {1, 2, 7, 50, k / 3, k - 1, k, k + 9}) {
    if (top_k > 0) add(0.8f, top_k, 1, 0);
  }
  for (const float top_p : {0.0f, 0.3f, 0.5f, 0.9f, 0.999f, 0.9999999f}) {
    add(1, 0, top_p, 0);
    add(0.7f, 20, top_p, 0);
  }
  add(1, k / 2, 0.9f, 0);
  for (const float min_p : {1e-40f, 1e-6f, 0.05f, 1.0f}) add(1, 0, 1, min_p);
  add(1.5f, 40, 0.8f, 0.02f);
  add(2, 0, 0.95f, 1e-3f);
  return all;
}

// Draws of one row by all parameters.
std::vector<Draw> AllDraws(const std::string& what, const std::vector<float>& row) {
  std::vector<Draw> draws;
  for (const auto& [name, params] : AllParams(row.size()))
    draws.push_back({row, params, what + ", " + name});
  return draws;
}

std::vector<size_t> Vocabularies() {
  if (TheLauncher().fast()) return {1, 100, 1024, 1025, 4001, 49152, 151936};
  return {1, 33, 1025};
}

TEST(DrawRows, OfRandomLogits) {
  for (const size_t vocab : Vocabularies()) {
    for (const double spread : {0.02, 1.0, 4.0})
      ExpectHostsTokens(
          AllDraws(fmt::format("spread {}", spread), RandomRow(vocab, vocab, spread)));
  }
}

TEST(DrawRows, OfManyChunks) {
  for (const size_t vocab : {size_t{2600}, size_t{4096}})
    ExpectHostsTokens(AllDraws("many chunks", RandomRow(vocab, vocab, 0.3)));
}

TEST(DrawRows, OfEqualLogits) {
  for (const size_t vocab : Vocabularies()) {
    ExpectHostsTokens(AllDraws("all equal", std::vector(vocab, 1.5f)));
    std::vector<float> row = RandomRow(vocab, 3, 2);
    for (float& x : row) x = std::round(x * 2) / 2;
    ExpectHostsTokens(AllDraws("multiples of 1/2", row));
    for (size_t i = 0; i < vocab; ++i) row[i] = i % 3 == 0 ? 1.5f : std::nextafter(1.5f, 2.0f);
    ExpectHostsTokens(AllDraws("neighbours", row));
    for (size_t i = 0; i < vocab; ++i) row[i] = i % 7 == 2 ? 0.0f : i % 2 == 0 ? -0.0f : 1e-40f;
    ExpectHostsTokens(AllDraws("zeros", row));
  }
}

TEST(DrawRows, OfLogitsThatAreNotFinite) {
  for (const size_t vocab : Vocabularies()) {
    ExpectHostsTokens(AllDraws("all NaN", std::vector(vocab, kNan)));
    ExpectHostsTokens(AllDraws("all -inf", std::vector(vocab, -kInf)));
    std::vector<float> row(vocab, -kInf);
    row[0] = kNan;
    if (vocab > 1) ExpectHostsTokens(AllDraws("NaN and -inf", row));
    row[vocab / 2] = -3;
    ExpectHostsTokens(AllDraws("one number", row));
    row = RandomRow(vocab, 5, 3);
    for (size_t i = 0; i < vocab; i += 3) row[i] = kNan;
    for (size_t i = 1; i < vocab; i += 5) row[i] = -kInf;
    ExpectHostsTokens(AllDraws("some not finite", row));
    row[vocab - 1] = row[vocab / 3] = kInf;
    ExpectHostsTokens(AllDraws("+inf", row));
    for (size_t i = 0; i < vocab; i += 2) row[i] = i % 4 == 0 ? 3e38f : -3e38f;
    row[vocab / 2] = std::numeric_limits<float>::max();
    ExpectHostsTokens(AllDraws("huge", row));
  }
}

// Rows that do not fit into the scratch at once are drawn in several launches.
TEST(DrawRows, OfMoreRowsThanTheScratchHolds) {
  constexpr uint64_t kScratchBytes = 3 * 3 * 16;
  constexpr size_t kRows = 8, kVocab = 2100;
  const SamplingParams params{.temperature = 1};
  std::vector<float> logits;
  std::vector<kernels::DrawRow> draws;
  std::vector<int32_t> expected, drawn(kRows, kPoison), sampled(kRows, kPoison);
  SampleScratch scratch;
  for (size_t i = 0; i < kRows; ++i) {
    const std::vector<float> row = RandomRow(kVocab, i, 2);
    logits.insert(logits.end(), row.begin(), row.end());
    const SampleInput input{.logits = row, .params = &params, .key = KeyOf(i)};
    expected.push_back(Sample(input, &scratch).token);
    draws.push_back(DrawOf(input, i, i));
  }
  const kernels::DrawRowsArgs args{.logits = logits.data(),
                                   .stride = kVocab,
                                   .vocab = kVocab,
                                   .first_row = kFirstRow,
                                   .num_draws = kRows,
                                   .weighed_draws = kRows,
                                   .draws = draws.data(),
                                   .drawn = drawn.data(),
                                   .sampled = sampled.data()};
  const base::Status status = TheLauncher().Run(0, [&](const device::LaunchContext& context) {
    kernels::cuda::PairKernels().draw_rows(args, WatchedContext(context, nullptr, kScratchBytes));
  });
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(drawn, expected);
  EXPECT_EQ(sampled, expected);
}

// Lists of log probabilities by kernels are the host's, of tokens that the host names or a draw has
// given; all in one launch.
void ExpectHostsLists(const std::vector<std::vector<float>>& rows) {
  runtime::SetFlushDenormals(true);
  const size_t vocab = rows[0].size();
  std::vector<float> logits;
  for (const std::vector<float>& row : rows) logits.insert(logits.end(), row.begin(), row.end());
  std::vector<kernels::LikelyRow> wanted;
  std::vector<int32_t> drawn;
  int32_t tokens_end = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const int32_t top_k : {0, 1, 5, 20, 512}) {
      const auto token = static_cast<int32_t>((row + static_cast<size_t>(top_k) * 7) % vocab);
      const bool is_drawn = top_k == 5;
      if (is_drawn) drawn.push_back(token);
      wanted.push_back({.row = kFirstRow + static_cast<int32_t>(row),
                        .token = is_drawn ? ~static_cast<int32_t>(drawn.size() - 1) : token,
                        .top_k = std::min(top_k, static_cast<int32_t>(vocab)),
                        .tokens = tokens_end});
      tokens_end += wanted.back().top_k;
    }
  }
  std::vector<kernels::LikelyHead> heads(wanted.size());
  std::vector<kernels::LikelyToken> tokens(static_cast<size_t>(tokens_end));
  const kernels::LikelyRowsArgs args{.logits = logits.data(),
                                     .stride = static_cast<int64_t>(vocab),
                                     .vocab = static_cast<int32_t>(vocab),
                                     .first_row = kFirstRow,
                                     .num_rows = static_cast<int32_t>(wanted.size()),
                                     .rows = wanted.data(),
                                     .drawn = drawn.data(),
                                     .heads = heads.data(),
                                     .tokens = tokens.data()};
  static int schedule = 0;
  const int launch = schedule++;
  const base::Status status = TheLauncher().Run(launch, [&](const device::LaunchContext& context) {
    kernels::cuda::PairKernels().likely_rows(args, context);
  });
  ASSERT_TRUE(status.ok()) << status.ToString();
  SampleScratch scratch;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [row, token, top_k, at] = wanted[i];
    const std::vector<float>& of = rows[static_cast<size_t>(row - kFirstRow)];
    const std::string what = fmt::format("vocabulary {}, row {}, {} tokens, launch {}", vocab,
                                         row - kFirstRow, top_k, launch);
    ASSERT_EQ(heads[i].token == kernels::kNothingDrawn, AllNan(of)) << what;
    if (AllNan(of)) continue;
    const int32_t named = token >= 0 ? token : drawn[static_cast<size_t>(~token)];
    const PositionLogprobs expected = LogprobsOf(of, named, top_k, &scratch),
                           found = LogprobsOf(heads[i], tokens.data() + at);
    ASSERT_EQ(found.chosen, expected.chosen) << what;
    ASSERT_EQ(found.top.size(), expected.top.size()) << what;
    for (size_t j = 0; j < found.top.size(); ++j) {
      ASSERT_EQ(found.top[j].token, expected.top[j].token) << what << ", " << j;
      ASSERT_EQ(found.top[j].rank, expected.top[j].rank) << what << ", " << j;
      ASSERT_EQ(std::memcmp(&found.top[j].logprob, &expected.top[j].logprob, sizeof(float)), 0)
          << what << ", " << j;
    }
  }
  runtime::SetFlushDenormals(false);
}

TEST(LikelyRows, AreTheHosts) {
  for (const size_t vocab : {size_t{1}, size_t{33}, size_t{1025}, size_t{2600}}) {
    std::vector<std::vector<float>> rows = {RandomRow(vocab, 1, 3), RandomRow(vocab, 2, 0.01),
                                            std::vector(vocab, 1.5f), std::vector(vocab, -kInf),
                                            std::vector(vocab, kNan)};
    std::vector<float> row = RandomRow(vocab, 3, 2);
    for (float& x : row) x = std::round(x * 2) / 2;
    rows.push_back(row);
    for (size_t i = 0; i < vocab; i += 3) row[i] = i % 2 == 0 ? kNan : -kInf;
    rows.push_back(row);
    row[vocab / 2] = kInf;
    rows.push_back(row);
    // Fewer numbers than are asked for, and zeros.
    for (size_t i = 0; i < vocab; ++i) row[i] = i % 300 == 7 ? 2.0f : kNan;
    row[vocab - 1] = 1;
    rows.push_back(row);
    for (size_t i = 0; i < vocab; ++i) row[i] = i % 7 == 2 ? 0.0f : i % 2 == 0 ? -0.0f : 1e-40f;
    rows.push_back(row);
    ExpectHostsLists(rows);
  }
}

// What needs the host's sampler is no kernel's.
TEST(DrawRows, PlainOnesAreKernels) {
  const auto plain = [](const SamplingParams& params, std::span<const int32_t> banned = {},
                        const TokenCounts* counts = nullptr) {
    return IsPlain({.params = &params, .counts = counts, .banned = banned});
  };
  const int32_t token = 3;
  const TokenCounts counts;
  EXPECT_TRUE(plain({}));
  EXPECT_TRUE(plain({.temperature = 0.5f, .top_p = 0.5f, .top_k = 3, .min_p = 0.1f, .seed = 4}));
  EXPECT_TRUE(plain({}, {}, &counts));
  EXPECT_FALSE(plain({}, std::span(&token, 1)));
  EXPECT_FALSE(plain({.logprobs = 0}));
  EXPECT_FALSE(plain({.logit_bias = {{3, 1.0f}}}));
  EXPECT_FALSE(plain({.allowed_token_ids = {3}}));
  EXPECT_FALSE(plain({.presence_penalty = 1}, {}, &counts));
  EXPECT_FALSE(plain({.frequency_penalty = 1}, {}, &counts));
  EXPECT_FALSE(plain({.repetition_penalty = 2}, {}, &counts));
  EXPECT_FALSE(plain({.temperature = 1e7f}));
}

}  // namespace
}  // namespace forebay::sample
