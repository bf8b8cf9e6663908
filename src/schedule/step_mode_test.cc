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
  EXPECT_EQ(Name(StepMode{.ffn = FfnMode::kGather, .tp = 4}), "gather");
  EXPECT_EQ(StepsCounter({.ffn = FfnMode::kShip}), "steps_ship");
}

TEST(StepModeTest, DegreesTellModesApart) {
  EXPECT_NE((StepMode{.ffn = FfnMode::kPull, .tp = 2}), StepMode{.ffn = FfnMode::kPull});
  EXPECT_FALSE(StepMode{.ffn = FfnMode::kPull}.meets());
  EXPECT_TRUE(StepMode{.ffn = FfnMode::kShip}.meets());
  EXPECT_TRUE(StepMode{.ffn = FfnMode::kGather}.meets());
  EXPECT_FALSE(StepMode{.ffn = FfnMode::kRouted}.meets());
}

TEST(StepModeTest, FewRowsPullWhatIsWanted) {
  const StepMode pull{.ffn = FfnMode::kPull, .tp = 2}, routed{.ffn = FfnMode::kRouted, .tp = 2},
      local{}, ship{.ffn = FfnMode::kShip};
  EXPECT_EQ(OwnMode{}.Of(pull, 0, 0), pull);  // none at all, though there are few rows
  const OwnMode few{.routed_rows = 5};
  EXPECT_EQ(few.Of(pull, 5, 7), routed);
  EXPECT_EQ(few.Of(pull, 6, 7), pull);
  EXPECT_EQ(few.Of(local, 1, 7), local);
  EXPECT_EQ(few.Of(ship, 1, 7), ship);
  const OwnMode flips{.routed_rows = 5, .flip_every = 2};
  for (int64_t step = 0; step < 8; ++step) {
    EXPECT_EQ(flips.Of(pull, 3, step), step / 2 % 2 == 0 ? routed : pull) << step;
    EXPECT_EQ(flips.Of(pull, 6, step), pull) << step;
  }
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
