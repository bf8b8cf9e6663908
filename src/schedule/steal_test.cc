#include "schedule/steal.h"

#include <gtest/gtest.h>

namespace forebay::schedule {
namespace {

// Moving 100 tokens of KV takes as long as 10 rows of that context.
constexpr StealPrices kPrices{
    .row_seconds = 0, .context_token_seconds = 1e-6, .kv_token_seconds = 1e-5};

TEST(Steal, MovesPayWhereTheyTakeLessThanTheRowsToCome) {
  EXPECT_FALSE(MovePays({.tokens_left = 10, .kv_tokens = 100}, kPrices));
  EXPECT_TRUE(MovePays({.tokens_left = 11, .kv_tokens = 100}, kPrices));
  // both grow with the context
  EXPECT_TRUE(MovePays({.tokens_left = 11, .kv_tokens = 100'000}, kPrices));
  StealPrices prices = kPrices;
  prices.move_seconds = 1;
  EXPECT_FALSE(MovePays({.tokens_left = 1000, .kv_tokens = 100}, prices));
  EXPECT_TRUE(MovePays({.tokens_left = 1000, .kv_tokens = 2000}, prices));
  prices.row_seconds = 1e-2;
  EXPECT_TRUE(MovePays({.tokens_left = 110, .kv_tokens = 100}, prices));
}

TEST(Steal, ChooseGifts) {
  struct Row {
    const char* rule;
    StealView view;
    std::vector<int32_t> gifts;
  };
  const Row rows[] = {
      {"nothing is held", {}, {}},
      {"the last one is kept", {.held = {{.tokens_left = 100}}}, {}},
      {"one of two equal ones", {.held = {{.tokens_left = 100}, {.tokens_left = 100}}}, {0}},
      {"waiting ones before running ones",
       {.held = {{100, 50}, {100, 50}, {100, 0}, {100, 0}}},
       {2, 3}},
      {"running ones, the longest first, up to the share",
       {.held = {{100, 50}, {300, 50}, {200, 50}, {400, 50}}},
       {3, 0}},
      {"what is above the share is left out", {.held = {{1000, 50}, {100, 50}, {90, 50}}}, {1, 2}},
      {"what does not pay stays", {.held = {{10, 50}, {1000, 50}, {9, 50}, {400, 50}}}, {3}},
      {"what cannot be moved stays",
       {.held = {{.tokens_left = 100, .movable = false},
                 {100, 0},
                 {.tokens_left = 100, .movable = false}}},
       {1}},
      {"a part for each that asks",
       {.held = {{100, 0}, {100, 0}, {100, 0}, {100, 0}}, .askers = 3},
       {0}},
      {"no more than fit",
       {.held = {{100, 0}, {100, 0}, {100, 0}, {100, 0}, {100, 0}}, .most = 1},
       {0}},
  };
  for (const Row& row : rows) {
    std::vector<int32_t> gifts = {99};
    ChooseGifts(row.view, kPrices, &gifts);
    EXPECT_EQ(gifts, row.gifts) << row.rule;
  }
}

}  // namespace
}  // namespace forebay::schedule
