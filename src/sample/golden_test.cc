// tests/golden/sampling.jsonl: 200 rows of logits and parameters with the exact distribution
// (rules: its README).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "base/json.h"
#include "sample/sampler.h"
#include "testing/test_data.h"

namespace forebay::sample {
namespace {

template <typename T>
std::vector<T> FromBase64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const uint32_t value = c >= 'A' && c <= 'Z'   ? c - 'A'
                           : c >= 'a' && c <= 'z' ? c - 'a' + 26
                           : c >= '0' && c <= '9' ? c - '0' + 52
                           : c == '+'             ? 62
                                                  : 63;
    if (c == '=') break;
    bits = bits << 6 | value;
    held += 6;
    if (held >= 8) bytes.push_back(static_cast<char>(bits >> (held -= 8) & 0xFF));
  }
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

std::vector<int32_t> Ids(simdjson::dom::element list) {
  std::vector<int32_t> ids;
  for (const auto id : list.get_array())
    ids.push_back(static_cast<int32_t>(id.get_int64().value()));
  return ids;
}

TEST(SamplingGoldenTest, KeptTokensAndProbabilities) {
  const auto file = base::ReadFile(TestData() + "/golden/sampling.jsonl");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  std::istringstream lines(*file);
  simdjson::dom::parser parser;
  SampleScratch scratch;
  int cases = 0, ties = 0, flushed = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const auto json = *base::ParseJson(parser, line);
    SCOPED_TRACE(json["id"].get_int64().value());
    const auto logits = FromBase64<float>(json["logits_f32"]);
    const auto expected = FromBase64<double>(json["probs_f64"]);
    ASSERT_EQ(static_cast<int64_t>(logits.size()), json["vocab"].get_int64().value());
    ties += std::string_view(json["kind"]) == "tie";

    SamplingParams params;
    params.temperature = static_cast<float>(json["temperature"].get_double().value());
    params.top_k = static_cast<int32_t>(json["top_k"].get_int64().value());
    params.top_p = static_cast<float>(json["top_p"].get_double().value());
    params.min_p = static_cast<float>(json["min_p"].get_double().value());
    params.repetition_penalty = static_cast<float>(json["repetition_penalty"].get_double().value());
    params.presence_penalty = static_cast<float>(json["presence_penalty"].get_double().value());
    params.frequency_penalty = static_cast<float>(json["frequency_penalty"].get_double().value());
    for (const auto pair : json["logit_bias"].get_array()) {
      params.logit_bias.emplace_back(static_cast<int32_t>(pair.at(0).get_int64().value()),
                                     static_cast<float>(pair.at(1).get_double().value()));
    }
    TokenCounts counts;
    counts.AddPrompt(Ids(json["prompt_ids"]));
    for (const int32_t token : Ids(json["output_ids"])) counts.AddOutput(token);
    std::vector<int32_t> kept(logits.size());
    for (size_t i = 0; i < kept.size(); ++i) kept[i] = static_cast<int32_t>(i);
    if (simdjson::dom::element ids; json["kept_ids"].get(ids) == simdjson::SUCCESS) kept = Ids(ids);
    ASSERT_EQ(kept.size(), expected.size());

    const SampleInput input{.logits = logits, .params = &params, .counts = &counts};
    const Distribution got = ProcessedDistribution(input, &scratch);
    const auto argmax = static_cast<int32_t>(json["argmax"].get_int64().value());
    size_t next = 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      // Compute threads flush denormals, so such a probability is 0 here.
      if (expected[i] < std::numeric_limits<double>::min()) {
        ++flushed;
        continue;
      }
      ASSERT_LT(next, got.tokens.size());
      ASSERT_EQ(got.tokens[next], kept[i]);
      // log(p / p_max) stands for the processed logits, which the reference does not store.
      const double spread = std::fabs(std::log(expected[i]));
      ASSERT_NEAR(got.probabilities[next] / expected[i], 1, 1e-6 * (1 + spread))
          << "token " << kept[i];
      ++next;
    }
    EXPECT_EQ(next, got.tokens.size());
    params.temperature = 0;
    EXPECT_EQ(Sample(input, &scratch).token, argmax);
  }
  EXPECT_EQ(cases, 200);
  EXPECT_EQ(ties, 20);
  EXPECT_EQ(flushed, 3);
}

}  // namespace
}  // namespace forebay::sample
