#include "schedule/due.h"

#include <gtest/gtest.h>

namespace forebay::schedule {
namespace {

BatchRate Rate(double step_seconds, int64_t rows) {
  BatchRate rate;
  for (int step = 0; step < 100; ++step) rate.Observe(step_seconds, rows);
  return rate;
}

TEST(BatchRateTest, IsThatOfTheLastMinutes) {
  BatchRate rate;
  EXPECT_EQ(rate.tokens_per_second(), 0);
  for (int step = 0; step < 1000; ++step) rate.Observe(1, 100);
  EXPECT_NEAR(rate.tokens_per_second(), 100, 1e-9);
  EXPECT_NEAR(rate.step_seconds(), 1, 1e-9);
  rate.Observe(10, 0);  // people's alone
  EXPECT_NEAR(rate.tokens_per_second(), 100, 1e-9);
  for (int step = 0; step < 10'000; ++step) rate.Observe(0.1, 100);
  EXPECT_NEAR(rate.tokens_per_second(), 1000, 1);
  EXPECT_NEAR(rate.step_seconds(), 0.1, 1e-3);
}

TEST(HurriedUntilTest, Table) {
  struct Row {
    const char* rule;
    std::vector<DueWork> work;
    double hurried;
  };
  // 1,000 tokens a second in steps of 50 ms, 20 s after the begin.
  const BatchRate rate = Rate(0.05, 50);
  for (const Row& row : {
           Row{"nothing is due", {}, -kNoDeadline},
           Row{"what is done in half of the time is not hurried", {{60, 20'000, 10}}, -kNoDeadline},
           Row{"what needs all of it is", {{60, 39'000, 10}}, 60},
           Row{"what is due before comes before", {{100, 39'000, 10}, {90, 39'000, 10}}, 100},
           Row{"and what is due later waits", {{40, 5'000, 1}, {200, 39'000, 10}}, -kNoDeadline},
           Row{"one deadline's work is one sum", {{60, 19'000, 10}, {60, 19'000, 10}}, 60},
           Row{"an output takes a step a token", {{60, 800, 790}}, 60},
           Row{"and the longest of all that is due counts, wherever it stands",
               {{60, 4'000, 400}, {60, 16'000, 0}},
               60},
           Row{"but not that of an earlier deadline",
               {{60, 100, 400}, {62, 20'000, 0}},
               -kNoDeadline},
           Row{"a deadline that has passed is missed", {{10, 1, 1}, {500, 5, 1}}, 10},
           Row{"work without a deadline is never late", {{kNoDeadline, 1e9, 1e6}}, -kNoDeadline},
       }) {
    EXPECT_EQ(HurriedUntil(row.work, rate, 20), row.hurried) << row.rule;
  }
  EXPECT_EQ(HurriedUntil({{10, 1, 1}}, {}, 20), -kNoDeadline) << "no rate is known";
}

}  // namespace
}  // namespace forebay::schedule
