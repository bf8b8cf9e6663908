#include "schedule/lengths.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace forebay::schedule {
namespace {

constexpr int64_t kRoom = 100'000;

TEST(Lengths, NamesAreParsed) {
  EXPECT_EQ(*ParseLengthPredictor("quantile"), LengthPredictor::kQuantile);
  EXPECT_EQ(ParseLengthPredictor("p90").status().message(),
            "--length-predictor \"p90\" is unknown; expected max, mean, quantile or known");
}

TEST(Lengths, WhatIsAskedForOrKnownIsTaken) {
  const Lengths max(LengthPredictor::kMax), known(LengthPredictor::kKnown);
  EXPECT_EQ(max.Left(10, 90, 5), 90);
  EXPECT_EQ(known.Left(10, 90, 5), 5);
  EXPECT_EQ(known.Left(10, 90, -1), 90);
  EXPECT_EQ(known.Left(10, 3, 5), 3) << "no more than there is room for";
  EXPECT_EQ(max.Left(10, 0, -1), 0);
}

TEST(Lengths, TheMeanIsOfThoseThatCameFurther) {
  Lengths lengths(LengthPredictor::kMean);
  EXPECT_EQ(lengths.Left(0, kRoom, -1), 1024) << "nothing has ended";
  for (const int64_t output : {10, 20, 30, 60}) lengths.Ended(output);
  lengths.Update({});
  EXPECT_EQ(lengths.Left(0, kRoom, -1), 30);
  EXPECT_EQ(lengths.Left(20, kRoom, -1), 25);
  EXPECT_EQ(lengths.Left(50, kRoom, -1), 10);
  EXPECT_EQ(lengths.Left(60, kRoom, -1), 60) << "as far again";
}

// Half of the answers are short and have ended; the others run. That they run counts: the median
// of what has ended would be wrong.
TEST(Lengths, ThoseThatRunAreLongerThanTheyAre) {
  Lengths lengths(LengthPredictor::kQuantile);
  for (int i = 0; i < 40; ++i) lengths.Ended(10);
  lengths.Update(std::vector<int64_t>(60, 500));
  EXPECT_EQ(lengths.Left(0, kRoom, -1), 1024) << "more than half come further than 10";
  EXPECT_EQ(lengths.Left(500, kRoom, -1), 524);
  for (int i = 0; i < 30; ++i) lengths.Ended(600);
  lengths.Update(std::vector<int64_t>(30, 700));
  // A bin is an octave's 32nd part.
  EXPECT_NEAR(static_cast<double>(lengths.Left(0, kRoom, -1)), 600, 20);
  EXPECT_NEAR(static_cast<double>(lengths.Left(500, kRoom, -1)), 100, 20);
}

// Of normally distributed lengths the middle is found, at the begin and on the way.
TEST(Lengths, TheMedianGivenTheAge) {
  base::Rng rng(5);
  Lengths lengths(LengthPredictor::kQuantile);
  const auto normal = [&] {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(rng.Below(1 << 20)) / (1 << 20);
    return static_cast<int64_t>(1612 + 400 * (sum - 6));
  };
  for (int i = 0; i < 4000; ++i) lengths.Ended(normal());
  lengths.Update({});
  EXPECT_NEAR(static_cast<double>(lengths.Left(0, kRoom, -1)), 1612, 64);
  // Of those beyond the mean half exceed it by .67 deviations.
  EXPECT_NEAR(static_cast<double>(lengths.Left(1612, kRoom, -1)), 270, 80);
  EXPECT_LT(lengths.Left(2400, kRoom, -1), 250);
}

TEST(Lengths, IsDueWhenSomethingHasEndedOrTimeHasPassed) {
  Lengths lengths(LengthPredictor::kQuantile);
  EXPECT_FALSE(lengths.Due());
  lengths.Ended(5);
  EXPECT_TRUE(lengths.Due());
  int skipped = 0;
  while (!lengths.Due()) ++skipped;
  EXPECT_EQ(skipped, 31);
}

// Any length up to the largest context has its bin, and ages beyond all do no harm.
TEST(Lengths, AnyLength) {
  for (const auto predictor : {LengthPredictor::kMean, LengthPredictor::kQuantile}) {
    Lengths lengths(predictor);
    base::Rng rng(1);
    for (int i = 0; i < 20'000; ++i) {
      const auto length = static_cast<int64_t>(rng.Next() >> (36 + rng.Below(28)));
      lengths.Ended(length);
      if (i % 100 == 0) lengths.Update(std::vector<int64_t>{length, 0});
      const int64_t left = lengths.Left(length, kRoom, -1);
      EXPECT_GE(left, 1);
      EXPECT_LE(left, kRoom);
    }
  }
}

}  // namespace
}  // namespace forebay::schedule
