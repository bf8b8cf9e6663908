#include "schedule/mode_rule.h"

#include <gtest/gtest.h>

#include <limits>

namespace forebay::schedule {
namespace {

constexpr StepMode kPulls{.ffn = FfnMode::kPull, .degrees = {.tp = 2}},
    kRoutes{.ffn = FfnMode::kRouted, .degrees = {.tp = 2}};

TEST(ModeRule, IsTheLayoutsOwnModeWhereNothingElseIsSaid) {
  EXPECT_EQ((ModeRule{.wanted = kPulls}.Of(0, 0)), kPulls);
  EXPECT_EQ((ModeRule{.wanted = {.degrees = {4, 2}}}.Of(100, 7)), (StepMode{.degrees = {4, 2}}));
}

TEST(ModeRule, FewRowsPullTheirExpertsAlone) {
  const ModeRule few{.wanted = kPulls, .routed_rows = 5};
  EXPECT_EQ(few.Of(5, 7), kRoutes);
  EXPECT_EQ(few.Of(6, 7), kPulls);
  // Where no weights come, none can be left out.
  for (const FfnMode ffn : {FfnMode::kLocal, FfnMode::kShip})
    EXPECT_EQ((ModeRule{.wanted = {.ffn = ffn}, .routed_rows = 5}.Of(1, 7)), StepMode{.ffn = ffn});
}

TEST(ModeRule, ATrialTakesBothWaysInTurn) {
  const ModeRule flips{.wanted = kPulls, .routed_rows = 5, .flip_every = 2};
  for (int64_t step = 0; step < 8; ++step) {
    EXPECT_EQ(flips.Of(3, step), step / 2 % 2 == 0 ? kRoutes : kPulls) << step;
    EXPECT_EQ(flips.Of(6, step), kPulls) << step;
  }
}

TEST(ModeRule, DegreesAreThoseOfTheTable) {
  const ModeRule rule{
      .wanted = {.ffn = FfnMode::kPull, .degrees = {8, 1}},
      .shift = {.entries = {{64, {1, 8}}, {std::numeric_limits<int64_t>::max(), {8, 1}}},
                .pooled = true}};
  EXPECT_EQ(rule.Of(64, 0), (StepMode{.degrees = {1, 8}}));  // owns what it reads
  EXPECT_EQ(rule.Of(65, 0), rule.wanted);
}

}  // namespace
}  // namespace forebay::schedule
