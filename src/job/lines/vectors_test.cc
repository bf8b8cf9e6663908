#include "job/lines/vectors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
