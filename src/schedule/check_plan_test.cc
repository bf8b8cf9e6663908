#include <gtest/gtest.h>

#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

StepView View() {
  return {.running =
              {{.known_tokens = 33, .computed_tokens = 32, .reserved_blocks = 1, .decoding = true},
               {.known_tokens = 80, .computed_tokens = 16, .reserved_blocks = 1}},
          .waiting = {{.known_tokens = 20, .remaining_output = 9},
                      {.known_tokens = 40, .cached_tokens = 32, .remaining_output = 9}},
          .available_blocks = 4,
          .limits = {.max_num_seqs = 3, .max_num_batched_tokens = 40, .total_blocks = 6}};
}

TEST(CheckPlanTest, AcceptsAPlanAtItsLimits) {
  CheckPlan(View(), {.run = {{0, 1}, {1, 31}}, .admit = {{1, 8}}});
  CheckPlan(View(), {.preempt = {1}, .run = {{0, 1}}});
}

TEST(CheckPlanTest, AbortsOnEachBrokenRule) {
  const StepView view = View();
  EXPECT_DEATH(CheckPlan(view, {.run = {{2, 1}}}), "running choice 2 of 2");
  EXPECT_DEATH(CheckPlan(view, {.run = {{0, 1}, {0, 1}}}), "planned twice");
  EXPECT_DEATH(CheckPlan(view, {.preempt = {1}, .run = {{1, 1}}}), "planned twice");
  EXPECT_DEATH(CheckPlan(view, {.preempt = {0}, .run = {{1, 1}}}), "the first running choice");
  EXPECT_DEATH(CheckPlan(view, {.run = {{0, 2}}}), "2 rows of 1");
  EXPECT_DEATH(CheckPlan(view, {.run = {{1, 0}}}), "0 rows of 64");
  EXPECT_DEATH(CheckPlan(view, {.admit = {{1, 1}, {0, 1}}}), "out of order");
  EXPECT_DEATH(CheckPlan(view, {.admit = {{1, 9}}}), "9 rows of 8");
  EXPECT_DEATH(CheckPlan(view, {.run = {{1, 41}}}), "41 rows, at most 40");
  EXPECT_DEATH(CheckPlan(view, {}), "nothing is planned");
  StepView small = view;
  small.limits.max_num_seqs = 2;
  EXPECT_DEATH(CheckPlan(small, {.admit = {{1, 8}}}), "3 choices, at most 2");
  small = view;
  small.available_blocks = 1;
  small.limits.total_blocks = 3;
  EXPECT_DEATH(CheckPlan(small, {.run = {{0, 1}, {1, 31}}}), "2 blocks wanted, 1 available");
  // Any but the first may give way, and gives what it holds alone.
  small.running.push_back(small.running[1]);
  small.running[1].exclusive_blocks = 1;
  CheckPlan(small, {.preempt = {1}, .run = {{0, 1}, {2, 16}}});
  EXPECT_DEATH(CheckPlan(small, {.preempt = {2}, .run = {{0, 1}, {1, 17}}}),
               "2 blocks wanted, 1 available");
}

}  // namespace
}  // namespace forebay::schedule
