#include "job/lines/vectors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>

namespace forebay::job {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;

TEST(VectorsTest, AreCutAndThenNormalised) {
  const std::vector<float> pooled = {3, 4, 12};
  EXPECT_THAT(VectorOf(pooled, {}), ElementsAre(3, 4, 12));
  EXPECT_THAT(VectorOf(pooled, {.dimensions = 2}), ElementsAre(3, 4));
  EXPECT_THAT(VectorOf(pooled, {.dimensions = 2, .normalize = true}),
              ElementsAre(FloatEq(0.6f), FloatEq(0.8f)));
  EXPECT_THAT(VectorOf(std::vector<float>(2), {.normalize = true}), ElementsAre(0, 0));
}

TEST(VectorsTest, WhatAHeadSays) {
  const auto style = [](Labels::Rule rule) {
    Labels labels{.names = {"a", "b"}, .rule = rule};
    return VectorStyle{.queries = 1, .labels = std::make_shared<const Labels>(std::move(labels))};
  };
  const std::vector<float> numbers = {std::log(3.0f), 0};
  const std::vector<double> softmax = ProbabilitiesOf(numbers, style(Labels::Rule::kSoftmax));
  EXPECT_NEAR(softmax[0], 0.75, 1e-7);
  EXPECT_NEAR(softmax[1], 0.25, 1e-7);
  const std::vector<double> sigmoid = ProbabilitiesOf(numbers, style(Labels::Rule::kSigmoid));
  EXPECT_NEAR(sigmoid[0], 0.75, 1e-7);
  EXPECT_NEAR(sigmoid[1], 0.5, 1e-7);
  EXPECT_THAT(ProbabilitiesOf(std::vector<float>{-2, 4}, style(Labels::Rule::kIdentity)),
              ElementsAre(-2, 4));
  VectorStyle as_they_are = style(Labels::Rule::kSigmoid);
  as_they_are.activation = false;
  EXPECT_THAT(ProbabilitiesOf(std::vector<float>{-2, 4}, as_they_are), ElementsAre(-2, 4));
  const std::vector<std::vector<float>> pairs = {{0}, {1000}, {-1000}};
  EXPECT_THAT(ScoresOf(pairs, style(Labels::Rule::kSigmoid)), ElementsAre(0.5, 1, 0));
}

TEST(VectorsTest, CosinesOfOneWithMany) {
  const std::vector<std::vector<float>> pooled = {{2, 0}, {3, 0}, {0, 5}, {-1, 0}};
  EXPECT_THAT(CosinesOf(pooled, {.queries = 1}), ElementsAre(1, 0, -1));
  EXPECT_THAT(CosinesOf(pooled, {.queries = 2}), ElementsAre(0, -1));
}

TEST(VectorsTest, Base64OfAnyLength) {
  EXPECT_EQ(Base64({}), "");
  EXPECT_EQ(Base64(std::vector<float>{1}), "AACAPw==");
  EXPECT_EQ(Base64(std::vector<float>{1, 2}), "AACAPwAAAEA=");
  EXPECT_EQ(Base64(std::vector<float>{1, 2, -3}), "AACAPwAAAEAAAEDA");
}

}  // namespace
}  // namespace forebay::job
