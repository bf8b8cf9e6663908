#include "schedule/step_mode.h"

#include <gtest/gtest.h>

#include <set>

namespace forebay::schedule {
namespace {

TEST(StepModeTest, NamesAndModesAreOneToOne) {
  std::set<std::string_view> names;
  for (const StepMode& mode : AllModes()) {
    EXPECT_TRUE(names.insert(Name(mode)).second) << Name(mode);
    const base::Result<StepMode> parsed = ParseMode(Name(mode));
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(*parsed, mode);
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"local", "pull", "ship", "gather", "routed"}));
  EXPECT_EQ(Name(StepMode{.ffn = FfnMode::kGather, .degrees = {.tp = 4}}), "gather");
  EXPECT_EQ(StepsCounter({.ffn = FfnMode::kShip}), "steps_ship");
}

TEST(StepModeTest, DegreesTellModesApart) {
  EXPECT_NE((StepMode{.ffn = FfnMode::kPull, .degrees = {.tp = 2}}),
            StepMode{.ffn = FfnMode::kPull});
  EXPECT_FALSE(StepMode{.ffn = FfnMode::kPull}.meets());
  EXPECT_TRUE(StepMode{.ffn = FfnMode::kShip}.meets());
  EXPECT_TRUE(StepMode{.ffn = FfnMode::kGather}.meets());
  EXPECT_FALSE(StepMode{.ffn = FfnMode::kRouted}.meets());
}

TEST(StepModeTest, HelpHasAWordOnEachNameThatCanBeAskedFor) {
  for (const std::string& name : WantedModeNames())
    EXPECT_NE(WantedModeHelp().find(name + " ("), std::string::npos) << WantedModeHelp();
}

TEST(StepModeTest, OfWhatCanBeAskedForAutoIsNoMode) {
  EXPECT_EQ(WantedModeNames(),
            (std::vector<std::string>{"auto", "pull", "ship", "gather", "routed"}));
  for (const std::string& name : WantedModeNames()) {
    const base::Result<WantedMode> wanted = ParseWantedMode(name);
    ASSERT_TRUE(wanted.ok()) << wanted.status().ToString();
    EXPECT_EQ(Name(*wanted), name);
    EXPECT_EQ(wanted->has_value(), name != "auto");
  }
  EXPECT_EQ(ParseWantedMode("local").status().message(),
            "mode \"local\" cannot be asked for; expected one of auto, pull, ship, gather, routed");
  EXPECT_EQ(ParseWantedMode("push").status().message(),
            "mode \"push\" is unknown; expected one of local, pull, ship, gather, routed");
}

}  // namespace
}  // namespace forebay::schedule
