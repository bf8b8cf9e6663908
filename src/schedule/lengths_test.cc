#include "schedule/lengths.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace forebay::schedule {
namespace {

constexpr int64_t kRoom = 100'000;
constexpr AnswerKind kKind{.prompt_tokens = 100};

TEST(Lengths, WhatIsAskedForOrKnownIsTaken) {
  const Lengths max(LengthPredictor::kMax), known(LengthPredictor::kKnown);
  EXPECT_EQ(max.Left(kKind, 10, 90, 5), 90);
  EXPECT_EQ(known.Left(kKind, 10, 90, 5), 5);
  EXPECT_EQ(known.Left(kKind, 10, 90, -1), 90);
  EXPECT_EQ(known.Left(kKind, 10, 3, 5), 3) << "no more than there is room for";
  EXPECT_EQ(max.Left(kKind, 10, 0, -1), 0);
}

TEST(Lengths, TheMeanIsOfThoseThatCameFurther) {
  Lengths lengths(LengthPredictor::kMean);
  EXPECT_EQ(lengths.Left(kKind, 0, kRoom, -1), 1024) << "nothing has ended";
  for (const int64_t output : {10, 20, 30, 60}) lengths.Ended(kKind, output);
  lengths.Update({});
  EXPECT_EQ(lengths.Left(kKind, 0, kRoom, -1), 30);
  EXPECT_EQ(lengths.Left(kKind, 20, kRoom, -1), 25);
  EXPECT_EQ(lengths.Left(kKind, 50, kRoom, -1), 10);
  EXPECT_EQ(lengths.Left(kKind, 60, kRoom, -1), 60) << "as far again";
}

// Half of the answers are short and have ended; the others run. That they run counts: the median
// of what has ended would be wrong.
TEST(Lengths, ThoseThatRunAreLongerThanTheyAre) {
  Lengths lengths(LengthPredictor::kQuantile);
  for (int i = 0; i < 40; ++i) lengths.Ended(kKind, 10);
  lengths.Update(std::vector<BegunAnswer>(60, {kKind, 500}));
  EXPECT_EQ(lengths.Left(kKind, 0, kRoom, -1), 1024) << "more than half come further than 10";
  EXPECT_EQ(lengths.Left(kKind, 500, kRoom, -1), 524);
  for (int i = 0; i < 30; ++i) lengths.Ended(kKind, 600);
  lengths.Update(std::vector<BegunAnswer>(30, {kKind, 700}));
  // A bin is an octave's 32nd part.
  EXPECT_NEAR(static_cast<double>(lengths.Left(kKind, 0, kRoom, -1)), 600, 20);
  EXPECT_NEAR(static_cast<double>(lengths.Left(kKind, 500, kRoom, -1)), 100, 20);
}

// The middle of normally distributed lengths is found, at the begin and on the way.
TEST(Lengths, TheMedianGivenTheAge) {
  base::Rng rng(5);
  Lengths lengths(LengthPredictor::kQuantile);
  const auto normal = [&] {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(rng.Below(1 << 20)) / (1 << 20);
    return static_cast<int64_t>(1612 + 400 * (sum - 6));
  };
  for (int i = 0; i < 4000; ++i) lengths.Ended(kKind, normal());
  lengths.Update({});
  EXPECT_NEAR(static_cast<double>(lengths.Left(kKind, 0, kRoom, -1)), 1612, 64);
  // Half of those beyond the mean exceed it by .67 deviations.
  EXPECT_NEAR(static_cast<double>(lengths.Left(kKind, 1612, kRoom, -1)), 270, 80);
  EXPECT_LT(lengths.Left(kKind, 2400, kRoom, -1), 250);
}

// Answers to short prompts are long here, those to long ones short.
TEST(Lengths, PromptsOfOtherLengthsTellNothing) {
  const AnswerKind small{.prompt_tokens = 60}, large{.prompt_tokens = 3000};
  Lengths lengths(LengthPredictor::kQuantile);
  const auto left = [&](const AnswerKind& kind) { return lengths.Left(kind, 0, kRoom, -1); };
  const auto both_end = [&] {
    lengths.Ended(small, 40);
    lengths.Ended(large, 10);
  };
  for (int i = 0; i < 31; ++i) both_end();
  lengths.Update({});
  EXPECT_EQ(left(small), left(large)) << "too few have ended to tell them apart";
  both_end();
  // What runs counts among its like.
  lengths.Update(std::vector<BegunAnswer>(8, {large, 20}));
  EXPECT_EQ(left(small), 40);
  EXPECT_EQ(left(large), 10);
  EXPECT_EQ(left({.prompt_tokens = 40}), 40) << "of the same octave";
  EXPECT_EQ(left({.prompt_tokens = 64}), 40) << "as all: 32 of 72 have ended with 10";
}

// Two templates whose prompts are as long.
TEST(Lengths, PromptsThatBeginAlikeTellMore) {
  const AnswerKind a{500, 1}, b{500, 2}, other{500, 3};
  Lengths lengths(LengthPredictor::kMean);
  for (int i = 0; i < 32; ++i) {
    lengths.Ended(a, 10);
    lengths.Ended(b, 30);
  }
  lengths.Update({});
  EXPECT_EQ(lengths.Left(a, 0, kRoom, -1), 10);
  EXPECT_EQ(lengths.Left(b, 0, kRoom, -1), 30);
  EXPECT_EQ(lengths.Left(other, 0, kRoom, -1), 20);
  // Thousands that each begin in their own way leave room for one that comes late.
  for (uint64_t start = 100; start < 3000; ++start) lengths.Ended({500, start}, 20);
  for (int i = 0; i < 32; ++i) lengths.Ended(other, 50);
  lengths.Update({});
  EXPECT_EQ(lengths.Left(a, 0, kRoom, -1), 10);
  EXPECT_EQ(lengths.Left(other, 0, kRoom, -1), 50);
}

TEST(Lengths, IsDueWhenSomethingHasEndedOrTimeHasPassed) {
  Lengths lengths(LengthPredictor::kQuantile);
  EXPECT_FALSE(lengths.Due());
  lengths.Ended(kKind, 5);
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
      lengths.Ended(kKind, length);
      if (i % 100 == 0) lengths.Update(std::vector<BegunAnswer>{{kKind, length}, {kKind, 0}});
      const int64_t left = lengths.Left(kKind, length, kRoom, -1);
      EXPECT_GE(left, 1);
      EXPECT_LE(left, kRoom);
    }
  }
}

}  // namespace
}  // namespace forebay::schedule
