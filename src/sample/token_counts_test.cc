#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "sample/sampler.h"

namespace forebay::sample {
namespace {

TEST(TokenCountsTest, AgreesWithAMapAndKeepsFirstAppearance) {
  base::Rng rng(3);
  TokenCounts counts;
  std::map<int32_t, int32_t> model;
  std::vector<int32_t> prompt(500);
  for (int32_t& token : prompt) token = static_cast<int32_t>(rng.Below(700));
  counts.AddPrompt(prompt);
  for (const int32_t token : prompt) model[token];
  EXPECT_EQ(counts.entries()[0].token, prompt[0]);
  for (int i = 0; i < 5000; ++i) {
    const auto token = static_cast<int32_t>(rng.Below(1500));
    counts.AddOutput(token);
    ++model[token];
  }
  ASSERT_EQ(counts.entries().size(), model.size());
  for (const auto& [token, output_count] : counts.entries())
    EXPECT_EQ(output_count, model.at(token)) << token;
}

}  // namespace
}  // namespace forebay::sample
