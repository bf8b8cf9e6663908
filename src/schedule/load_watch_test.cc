#include "schedule/load_watch.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace forebay::schedule {
namespace {

// Ranks of unlike rows ship fewer of them: whoever meets waits for the busiest.
TEST(LoadWatch, TheSpreadOfRowsMovesTheThreshold) {
  LoadRule rule{.threshold = 10, .patience = 2};
  LoadWatch watch(rule);
  watch.See(std::vector<int32_t>{20, 20, 0});
  for (int i = 0; i < 2; ++i) watch.See(std::vector<int32_t>{8, 8, 0});
  EXPECT_FALSE(watch.calm());  // two steps of each of the two that work: those that they are in
  watch.See(std::vector<int32_t>{8, 8, 0});
  EXPECT_TRUE(watch.calm());  // and one more of each
  EXPECT_EQ(watch.spread(), 0);
  rule.tolerated = {{{8, .25}, {4, .75}}};
  EXPECT_EQ(watch.threshold(), 10);
  // One that works alone is no spread, two of which one has all but all rows are nearly 1.
  for (int i = 0; i < 100; ++i) watch.See(std::vector<int32_t>{15, 0, 0});
  EXPECT_EQ(watch.spread(), 0);
  for (int i = 0; i < 200; ++i) watch.See(std::vector<int32_t>{14, 1, 0});
  EXPECT_NEAR(watch.spread(), 13. / 15, .01);
  EXPECT_EQ(watch.threshold(), 4);
  EXPECT_FALSE(watch.calm());
  EXPECT_FALSE(watch.high());  // 5 rows of each, and up to 1.25 times the threshold
  watch.See(std::vector<int32_t>{15, 1, 0});
  EXPECT_TRUE(watch.high());
  // Nor do steps count whose load is far too high, as one with a prompt is.
  const double before = watch.spread();
  watch.See(std::vector<int32_t>{1000, 1, 1});
  EXPECT_EQ(watch.spread(), before);
  EXPECT_TRUE(watch.high());
  watch.See(std::vector<int32_t>{7, 1, 0});
  EXPECT_FALSE(watch.high());
  // It comes back as slowly.
  for (int i = 0; i < 200; ++i) watch.See(std::vector<int32_t>{8, 8, 8});
  EXPECT_LT(watch.spread(), .01);
  EXPECT_TRUE(watch.calm());
  watch.Restart();
  EXPECT_FALSE(watch.calm());
}

TEST(LoadRule, TheThresholdFallsAsTheSpreadGrows) {
  LoadRule rule{.threshold = 100};
  EXPECT_EQ(rule.Threshold(3), 100);  // nothing is known
  rule.tolerated = {{{80, .1}, {40, .5}, {20, 1.5}, {10, 4}}};
  const std::pair<double, double> cases[] = {{0, 100}, {.05, 90}, {.1, 80}, {.3, 60}, {.5, 40},
                                             {1, 30},  {1.5, 20}, {4, 10},  {8, 5}};
  for (const auto& [spread, rows] : cases) EXPECT_NEAR(rule.Threshold(spread), rows, 1e-9);
  rule.threshold = 50;  // no step may have more
  EXPECT_EQ(rule.Threshold(.1), 50);
}

}  // namespace
}  // namespace forebay::schedule
