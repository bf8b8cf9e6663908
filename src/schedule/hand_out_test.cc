#include "schedule/hand_out.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

Taking HandOut(const QueueView& view) { return (*CreatePolicy("continuous"))->HandOut(view); }

TEST(HandOut, AReplicaHoldsNoMoreThanItsShareOfTheTokens) {
  struct Row {
    const char* rule;
    QueueView view;
    Taking expected;
  };
  constexpr Taking kNothing = Taking::kNothing, kNext = Taking::kNext, kLongest = Taking::kLongest;
  const Row rows[] = {
      {"alone",
       {.replicas = 1,
        .remaining = 5,
        .held = 100,
        .remaining_tokens = 50,
        .held_tokens = 1000,
        .held_tokens_by_all = 1000},
       kNext},
      {"holds nothing", {.replicas = 8, .remaining = 500, .remaining_tokens = 5000}, kNext},
      {"below its share",
       {.replicas = 8,
        .remaining = 438,
        .held = 62,
        .remaining_tokens = 4380,
        .held_tokens = 620,
        .held_tokens_by_all = 620},
       kNext},
      {"has its share",
       {.replicas = 8,
        .remaining = 437,
        .held = 63,
        .remaining_tokens = 4370,
        .held_tokens = 630,
        .held_tokens_by_all = 630},
       kNothing},
      {"the other one is behind",
       {.replicas = 2,
        .remaining = 1,
        .held = 3,
        .remaining_tokens = 10,
        .held_tokens = 30,
        .held_tokens_by_all = 40},
       kNothing},
      {"few, but long ones",
       {.replicas = 2,
        .remaining = 4,
        .held = 1,
        .remaining_tokens = 40,
        .held_tokens = 900,
        .held_tokens_by_all = 930},
       kNothing},
      {"many, but short ones",
       {.replicas = 2,
        .remaining = 4,
        .held = 9,
        .remaining_tokens = 40,
        .held_tokens = 30,
        .held_tokens_by_all = 930},
       kNext},
      {"holds nothing, whatever the others have",
       {.replicas = 4, .remaining = 1, .remaining_tokens = 1, .held_tokens_by_all = 900},
       kNext},
      {"a stream without an end, where the others take nothing now",
       {.replicas = 4, .remaining = -1, .held = 90, .held_tokens = 900, .held_tokens_by_all = 900},
       kNext},
      {"a stream without an end, where another holds less",
       {.replicas = 2,
        .remaining = -1,
        .held = 2,
        .remaining_tokens = 10,
        .held_tokens = 20,
        .held_tokens_by_all = 30,
        .least_held_tokens = 10,
        .next_tokens = 10},
       kNothing},
      {"a stream without an end, of which more is there than the share",
       {.replicas = 2,
        .remaining = -1,
        .held = 2,
        .remaining_tokens = 30,
        .held_tokens = 20,
        .held_tokens_by_all = 30,
        .least_held_tokens = 10,
        .next_tokens = 10},
       kNext},
      {"a stream without an end, of which a long one comes next",
       {.replicas = 2,
        .remaining = -1,
        .held = 2,
        .remaining_tokens = 30,
        .held_tokens = 20,
        .held_tokens_by_all = 30,
        .least_held_tokens = 10,
        .next_tokens = 20},
       kNothing},
      {"a stream without an end, where nobody holds less",
       {.replicas = 2,
        .remaining = -1,
        .held = 1,
        .remaining_tokens = 50,
        .held_tokens = 10,
        .held_tokens_by_all = 20,
        .least_held_tokens = 10,
        .next_tokens = 50},
       kNext},
      {"at the end, one as long as all others",
       {.replicas = 2,
        .remaining = 9,
        .held = 1,
        .remaining_tokens = 90,
        .held_tokens = 10,
        .held_tokens_by_all = 20,
        .held_choices = 2,
        .at_end = true,
        .outputs = 30,
        .longest_output = 20},
       kLongest},
      {"at the end, one that has time",
       {.replicas = 2,
        .remaining = 9,
        .held = 1,
        .remaining_tokens = 90,
        .held_tokens = 10,
        .held_tokens_by_all = 20,
        .held_choices = 2,
        .at_end = true,
        .outputs = 40,
        .longest_output = 20},
       kNext},
      {"not the end",
       {.replicas = 2,
        .remaining = 9,
        .held = 1,
        .remaining_tokens = 90,
        .held_tokens = 10,
        .held_tokens_by_all = 20,
        .held_choices = 2,
        .longest_output = 90},
       kNext},
      {"at the end, above its share",
       {.replicas = 2,
        .remaining = 1,
        .held = 3,
        .remaining_tokens = 10,
        .held_tokens = 30,
        .held_tokens_by_all = 40,
        .at_end = true},
       kNothing},
      {"a choice much longer than the share's steps",
       {.replicas = 2,
        .remaining = 9,
        .held = 4,
        .remaining_tokens = 900,
        .held_tokens = 500,
        .held_tokens_by_all = 1100,
        .held_choices = 4,
        .held_longest_output = 500},
       kNothing},
      {"one that is not",
       {.replicas = 2,
        .remaining = 9,
        .held = 4,
        .remaining_tokens = 900,
        .held_tokens = 500,
        .held_tokens_by_all = 1100,
        .held_choices = 4,
        .held_longest_output = 490},
       kNext},
      {"nobody else is there",
       {.replicas = 1,
        .remaining = 9,
        .held = 4,
        .remaining_tokens = 900,
        .held_tokens = 500,
        .held_tokens_by_all = 500,
        .held_choices = 4,
        .held_longest_output = 500},
       kNext},
  };
  for (const Row& row : rows) EXPECT_EQ(HandOut(row.view), row.expected) << row.rule;
}

TEST(HandOut, ExpectedTokens) {
  EXPECT_EQ(ExpectedTokens({.prompt_tokens = 100, .most_output = 50}, 7), 150);
  EXPECT_EQ(ExpectedTokens({.prompt_tokens = 100, .choices = 4, .most_output = 50}, 7), 300);
  EXPECT_EQ(ExpectedTokens({.prompt_tokens = 100, .choices = 2}, 7), 114);
  EXPECT_EQ(ExpectedTokens({.prompt_tokens = 100, .most_output = 0}, 7), 100);
}

TEST(HandOut, LongerFirst) {
  std::vector<LengthView> lengths = {{10, 1, 5},  {90, 1, 5}, {10, 1, 50},
                                     {80, 1, -1}, {10, 1, 0}, {20, 1, -1}};
  std::ranges::stable_sort(lengths, LongerFirst);
  std::vector<std::pair<int64_t, int64_t>> order;
  for (const LengthView& length : lengths)
    order.emplace_back(length.prompt_tokens, length.most_output);
  // Those without a bound stay in the order of the job.
  EXPECT_EQ(order, (std::vector<std::pair<int64_t, int64_t>>{
                       {80, -1}, {20, -1}, {10, 50}, {90, 5}, {10, 5}, {10, 0}}));
}

TEST(HandOut, DealsToWhoHasLeast) {
  const double tokens[] = {100, 90, 50, 40, 10};
  EXPECT_EQ(Deal(tokens, {0, 0}), (std::vector<int32_t>{0, 1, 1, 0, 0}));
  EXPECT_EQ(Deal(tokens, {120, 0}), (std::vector<int32_t>{1, 1, 0, 0, 1}));
  EXPECT_EQ(Deal(tokens, {-1, 7}), (std::vector<int32_t>{1, 1, 1, 1, 1}));
}

// Two replicas and four requests: the longest, by its bound, goes to the first, and so does the one
// whose tokens are fewest.
TEST(HandOut, LastRequestsAreDealtAndThenShared) {
  const LengthView lengths[] = {{10, 1, 5}, {10, 2, 40}, {10, 1, 100}, {10, 1, 20}};
  const auto make = [&] { return LastRequests(lengths, 7, {0, 0}); };
  LastRequests in_order = make();
  EXPECT_EQ(in_order.left(), 4);
  EXPECT_EQ(in_order.outputs(0), 105);
  EXPECT_EQ(in_order.longest_output(0), 100);
  EXPECT_EQ(in_order.outputs(1), 100);
  EXPECT_EQ(in_order.longest_output(1), 40);
  std::vector<int32_t> taken;
  while (in_order.left() > 0) taken.push_back(in_order.Take(1, false));
  EXPECT_EQ(taken, (std::vector<int32_t>{1, 3, 0, 2}));  // its own, then the other's
  EXPECT_EQ(in_order.outputs(0), 0);
  EXPECT_EQ(in_order.longest_output(0), 0);

  LastRequests longest = make();
  EXPECT_EQ(longest.Take(1, true), 1);
  EXPECT_EQ(longest.Take(0, true), 2);
  EXPECT_EQ(longest.outputs(0), 5);
  EXPECT_EQ(longest.Take(0, false), 0);
  EXPECT_EQ(longest.Take(0, true), 3);
}

}  // namespace
}  // namespace forebay::schedule
