#include "base/histogram.h"

#include <gtest/gtest.h>

#include <vector>

namespace forebay::base {
namespace {

constexpr double kBounds[] = {1, 2, 5};

std::vector<int64_t> Counts(const Histogram& histogram) {
  return {histogram.counts().begin(), histogram.counts().end()};
}

TEST(Histogram, AValueCountsUpToItsBound) {
  Histogram histogram(kBounds);
  for (const double value : {0.0, 1.0, 1.5, 2.0, 2.1, 5.0, 5.1, 100.0}) histogram.Add(value);
  EXPECT_EQ(Counts(histogram), (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_DOUBLE_EQ(histogram.sum(), 116.7);
}

TEST(Histogram, SumsAddUp) {
  Histogram one(kBounds), other(kBounds);
  one.Add(1);
  other.Add(1);
  other.Add(7);
  one.Add(other);
  EXPECT_EQ(Counts(one), (std::vector<int64_t>{2, 0, 0, 1}));
  EXPECT_DOUBLE_EQ(one.sum(), 9);
}

}  // namespace
}  // namespace forebay::base
