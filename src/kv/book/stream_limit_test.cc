#include "kv/book/stream_limit.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace forebay::kv {
namespace {

// Steps that stream as many blocks as they may, of `wanted`: each takes `copy` seconds on a link
// that is used all the time, beside a compute of `compute` seconds. Returns the last one's exposed
// part.
double TakeSteps(StreamLimit& limit, int steps, double compute, double copy,
                 int64_t wanted = 1 << 20) {
  double exposed = 0;
  for (int i = 0; i < steps; ++i) {
    const int64_t blocks = std::min<int64_t>(limit.limit(), wanted);
    const double seconds = std::max(compute, copy * static_cast<double>(blocks));
    exposed = (seconds - compute) / seconds;
    limit.Observe({seconds, seconds - compute, blocks});
  }
  return exposed;
}

TEST(StreamLimitTest, StaysWhereCopiesAreHidden) {
  StreamLimit limit({.places = 1000});
  TakeSteps(limit, 100, 1, 0.9e-3);
  EXPECT_EQ(limit.limit(), 1000);
  EXPECT_EQ(limit.shrinks(), 0);
}

TEST(StreamLimitTest, CopiesAtThirtyPercentOfTheirRateAreHiddenWithin32Steps) {
  StreamLimit limit({.places = 1000});
  EXPECT_LT(TakeSteps(limit, 32, 1, 1e-3 / 0.3), 0.02);
  // What is hidden of 1000 is 300.
  EXPECT_NEAR(limit.limit(), 303, 3);
  EXPECT_EQ(limit.lowest(), limit.limit());
  EXPECT_GE(limit.shrinks(), 1);
  // As the copies get their rate back, all are streamed again, and stay so.
  TakeSteps(limit, 1000, 1, 1e-3);
  EXPECT_EQ(limit.limit(), 1000);
  EXPECT_LT(limit.lowest(), 310);
}

TEST(StreamLimitTest, AStallOfTwoSecondsIsForgotten) {
  StreamLimit limit({.places = 1000, .least = 40});
  EXPECT_FALSE(limit.Observe({2.04, 2, 1000}));
  TakeSteps(limit, 7, 0.04, 0.03e-3);
  // Hardly a step of the interval was compute; what nobody could do without is left.
  EXPECT_GE(limit.limit(), 40);
  EXPECT_LT(limit.limit(), 200);
  TakeSteps(limit, 3000, 0.04, 0.03e-3);
  EXPECT_EQ(limit.limit(), 1000);
}

TEST(StreamLimitTest, FewerBlocksThanTheLimitDoNotRaiseIt) {
  StreamLimit limit({.places = 1000});
  TakeSteps(limit, 8, 1, 2e-3);
  const int32_t shrunk = limit.limit();
  EXPECT_NEAR(shrunk, 510, 2);
  TakeSteps(limit, 800, 1, 1e-3, 100);
  EXPECT_EQ(limit.limit(), shrunk);
  EXPECT_FALSE(limit.Observe({1, 0.9, 0})) << "nothing was streamed";
}

}  // namespace
}  // namespace forebay::kv
