#include "schedule/growth.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace forebay::schedule {
namespace {

WaitingView Waiting(int64_t known, int64_t left) {
  return {.known_tokens = known, .remaining_output = 10'000, .expected_left = left};
}
RunningView Running(int64_t known, int64_t left) {
  return {.known_tokens = known,
          .computed_tokens = known - 1,
          .reserved_blocks = (known + 31) / 32,
          .remaining_output = 10'000,
          .expected_left = left,
          .decoding = true};
}
StepView View(int64_t blocks, std::vector<RunningView> running, std::vector<WaitingView> waiting) {
  for (const RunningView& choice : running) blocks -= choice.reserved_blocks;
  return {.running = std::move(running), .waiting = std::move(waiting), .available_blocks = blocks};
}

TEST(ChoicesThatFit, Table) {
  struct Row {
    const char* rule;
    StepView view;
    int64_t fit;
    double capacity = 1;
  };
  // It has 320 + 320 tokens at its end: 20 blocks and a half.
  const WaitingView wait = Waiting(320, 320);
  const Row rows[] = {
      {"nothing waits", View(100, {Running(64, 10)}, {}), 0},
      {"two at their ends fit", View(41, {}, {wait, wait, wait}), 2},
      {"one block less", View(40, {}, {wait, wait}), 1},
      {"more than all of it where that is cheap", View(40, {}, {wait, wait}), 2, 1.05},
      {"one that ends before gives its blocks back", View(33, {Running(320, 1)}, {wait}), 1},
      {"one that ends later does not", View(33, {Running(320, 320)}, {wait}), 0},
      {"the largest need may be at the other's end",
       View(32, {Running(320, 32)}, {Waiting(640, 32)}), 0},
      {"and lie before the longest ends", View(33, {Running(320, 32)}, {Waiting(640, 320)}), 1},
      {"the first that does not fit ends it", View(30, {}, {Waiting(10, 3000), Waiting(10, 10)}),
       0},
      {"what is not foreseen is as long as it may be",
       View(100, {}, {{.known_tokens = 32, .remaining_output = 3200}}), 0},
  };
  for (const Row& row : rows)
    EXPECT_EQ(ChoicesThatFit(row.view, row.capacity), row.fit) << row.rule;
}

// Against a walk over all steps.
TEST(ChoicesThatFit, AgreesWithEveryStepCounted) {
  base::Rng rng(3);
  int64_t fitted = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<RunningView> running(rng.Below(6));
    for (RunningView& choice : running)
      choice = Running(static_cast<int64_t>(1 + rng.Below(300)),
                       static_cast<int64_t>(1 + rng.Below(200)));
    std::vector<WaitingView> waiting(rng.Below(6));
    for (WaitingView& choice : waiting)
      choice = Waiting(static_cast<int64_t>(1 + rng.Below(300)),
                       static_cast<int64_t>(1 + rng.Below(200)));
    int64_t blocks = static_cast<int64_t>(rng.Below(60));
    for (const RunningView& choice : running) blocks += choice.reserved_blocks;
    const auto peak = [&](int64_t admitted) {
      double most = 0;
      for (int64_t at = 0; at <= 200; ++at) {
        double need = 0;
        const auto add = [&](int64_t known, int64_t left) {
          if (at <= left) need += static_cast<double>(known + at) / 32 + .5;
        };
        for (const RunningView& choice : running) add(choice.known_tokens, choice.expected_left);
        for (int64_t i = 0; i < admitted; ++i)
          add(waiting[static_cast<size_t>(i)].known_tokens,
              waiting[static_cast<size_t>(i)].expected_left);
        most = std::max(most, need);
      }
      return most;
    };
    int64_t fit = 0;
    while (fit < std::ssize(waiting) && peak(fit + 1) <= static_cast<double>(blocks)) ++fit;
    ASSERT_EQ(ChoicesThatFit(View(blocks, running, waiting), 1), fit) << round;
    fitted += fit;
  }
  EXPECT_GT(fitted, 500);
}

// Those that fit now and the first that does not, at its place, never need more than there is, at
// any step.
TEST(ChoicesThatFitFirst, LeavesTheFirstThatWaitsAPlace) {
  base::Rng rng(5);
  int64_t overtook = 0;
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(round);
    const auto below = [&](uint64_t end) { return static_cast<int64_t>(1 + rng.Below(end)); };
    std::vector<RunningView> running(static_cast<size_t>(below(5)));
    for (RunningView& choice : running) choice = Running(below(300), below(200));
    std::vector<WaitingView> waiting(static_cast<size_t>(below(8)));
    for (WaitingView& choice : waiting) choice = Waiting(below(300), below(200));
    int64_t blocks = 20 + below(40);
    for (const RunningView& choice : running) blocks += choice.reserved_blocks;
    const StepView view = View(blocks, running, waiting);
    std::vector<bool> fit;
    ChoicesThatFitFirst(view, 1, &fit);
    ASSERT_EQ(fit.size(), waiting.size());
    const auto first = static_cast<size_t>(std::ranges::find(fit, false) - fit.begin());
    ASSERT_EQ(static_cast<int64_t>(first), ChoicesThatFit(view, 1));
    // The most blocks of all where the first that waits begins at this step; negative: never.
    const auto most = [&](int64_t begins) {
      double peak = 0;
      for (int64_t at = 1; at <= 400; ++at) {
        double need = 0;
        const auto add = [&](int64_t known, int64_t begin, int64_t left) {
          if (at > begin && at <= begin + left)
            need += static_cast<double>(known + at - begin) / 32 + .5;
        };
        for (const RunningView& choice : running) add(choice.known_tokens, 0, choice.expected_left);
        for (size_t i = 0; i < waiting.size(); ++i) {
          if (fit[i]) add(waiting[i].known_tokens, 0, waiting[i].expected_left);
          if (i == first && begins >= 0)
            add(waiting[i].known_tokens, begins, waiting[i].expected_left);
        }
        peak = std::max(peak, need);
      }
      return peak;
    };
    const double room = static_cast<double>(blocks);
    if (most(-1) > room) {
      // The running ones alone will not fit: nothing more does.
      EXPECT_EQ(std::ranges::count(fit, true), 0);
      continue;
    }
    const auto late = std::count(fit.begin() + static_cast<int64_t>(std::min(first, fit.size())),
                                 fit.end(), true);
    overtook += late;
    if (late == 0) continue;
    bool has_place = false;
    for (int64_t begins = 0; begins <= 200 && !has_place; ++begins)
      has_place = most(begins) <= room;
    EXPECT_TRUE(has_place);
  }
  EXPECT_GT(overtook, 20);
}

}  // namespace
}  // namespace forebay::schedule
