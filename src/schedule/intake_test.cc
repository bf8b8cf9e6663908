#include "schedule/intake.h"

#include <gtest/gtest.h>

namespace forebay::schedule {
namespace {

constexpr Limits kLimits{.max_num_seqs = 4, .max_num_batched_tokens = 100, .total_blocks = 10};

TEST(IntakeTest, Table) {
  struct Row {
    const char* rule;
    IntakeView view;
    bool wants;
  };
  const Row rows[] = {
      {"nothing is there", {.available_blocks = 10}, true},
      {"all places run, but nothing waits for the next one", {.running = 4}, true},
      {"one more would still find a place",
       {.running = 2, .waiting = 1, .waiting_rows = 99, .available_blocks = 10},
       true},
      {"what waits takes the last place",
       {.running = 3, .waiting = 1, .waiting_rows = 1, .available_blocks = 10},
       false},
      {"what waits fills a step with its rows",
       {.waiting = 1, .waiting_rows = 100, .available_blocks = 10},
       false},
      {"what waits takes the last block",
       {.waiting = 1, .waiting_rows = 64, .available_blocks = 2},
       false},
      {"one block more", {.waiting = 1, .waiting_rows = 64, .available_blocks = 3}, true},
      {"requests that end at once come to a step's places",
       {.ended = 4, .available_blocks = 10},
       false},
      {"not yet", {.ended = 3, .available_blocks = 10}, true},
      {"log probabilities take the memory that they may",
       {.running = 1, .available_blocks = 10, .logprob_bytes = 8, .most_logprob_bytes = 8},
       false},
      {"a byte is left",
       {.running = 1, .available_blocks = 10, .logprob_bytes = 7, .most_logprob_bytes = 8},
       true},
  };
  for (const Row& row : rows) EXPECT_EQ(WantsRequests(kLimits, row.view), row.wants) << row.rule;
}

}  // namespace
}  // namespace forebay::schedule
