#include "schedule/step_share.h"

#include <gtest/gtest.h>

namespace forebay::schedule {
namespace {

TEST(StepShareTest, Table) {
  const Limits limits{.max_num_seqs = 20, .max_num_batched_tokens = 100, .total_blocks = 50};
  struct Row {
    const char* rule;
    ShareView view;
    int64_t running;
    int32_t max_num_seqs, total_blocks;
  };
  const Row rows[] = {
      {"a step alone has all that is there", {.running = 7, .waiting = 5}, 7, 12, 50},
      {"no more than the places", {.running = 7, .waiting = 50}, 7, 20, 50},
      {"of two steps each has half, rounded up",
       {.running = 7, .waiting = 5, .steps = 2},
       4,
       6,
       50},
      {"what is in flight is not planned again",
       {.running = 7, .waiting = 5, .in_flight = 4, .steps = 2},
       3,
       6,
       50},
      {"the last step has what the others left",
       {.running = 9, .waiting = 0, .in_flight = 8, .steps = 3},
       1,
       3,
       50},
      {"what runs elsewhere takes places",
       {.running = 18, .waiting = 40, .in_flight = 9, .steps = 2},
       9,
       11,
       50},
      {"a loan takes a place and its blocks",
       {.running = 7, .waiting = 40, .loans = 2, .lent_blocks = 6},
       7,
       18,
       44},
      {"a second try may plan all that is not in flight",
       {.running = 7, .waiting = 0, .in_flight = 2, .steps = 1},
       5,
       7,
       50},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.rule);
    const StepShare share = ShareOf(limits, row.view);
    EXPECT_EQ(share.running, row.running);
    EXPECT_EQ(share.limits.max_num_seqs, row.max_num_seqs);
    EXPECT_EQ(share.limits.total_blocks, row.total_blocks);
    EXPECT_EQ(share.limits.max_num_batched_tokens, limits.max_num_batched_tokens);
  }
}

}  // namespace
}  // namespace forebay::schedule
