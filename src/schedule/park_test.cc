#include "schedule/park.h"

#include <gtest/gtest.h>

namespace forebay::schedule {
namespace {

TEST(ParkPays, ByTheTimeOfTheCopiesAndOfTheRows) {
  const ParkPrices prices{.row_seconds = 100e-6,
                          .context_token_seconds = 1e-8,
                          .block_seconds = 200e-6,
                          .block_up_seconds = 200e-6,
                          .move_seconds = 10e-6};
  struct Row {
    const char* rule;
    ParkView view;
    bool pays;
  };
  const Row rows[] = {
      {"1000 rows take 105 ms, 64 copies 12.8", {1000, 32, 32}, true},
      {"32 rows take 3.2 ms, two copies .4", {32, 1, 1}, true},
      {"a row takes .1 ms, two copies .42", {1, 1, 1}, false},
      {"what is below already comes back alone", {2, 0, 0}, true},
      {"a row at 20,000 takes .3 ms, a copy .21", {1, 0, 1, 20'000}, true},
      {"at the beginning .1", {1, 0, 1}, false},
      {"nothing to compute", {0, 0, 0}, false},
  };
  for (const Row& row : rows) EXPECT_EQ(ParkPays(row.view, prices), row.pays) << row.rule;
  EXPECT_FALSE(ParkPays({1000, 0, 0}, {})) << "without prices nothing is parked";
  EXPECT_TRUE(ParkPays({1, 100, 100}, {.row_seconds = 1})) << "copies that cost nothing always pay";
}

}  // namespace
}  // namespace forebay::schedule
