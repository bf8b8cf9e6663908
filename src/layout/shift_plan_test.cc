#include "layout/shift_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layout/layout_plan.h"
#include "model/builtin_configs.h"

namespace forebay::layout {
namespace {

using model::Degrees;
using testing::ElementsAre;
using testing::HasSubstr;

EngineOptions Options(const char* layout) {
  EngineOptions options{.model = "builtin:Llama-3.1-70B"};
  options.machine.devices = *ParseDevices("sim:8xh200");
  options.layout = *ParseLayout(layout);
  return options;
}

base::Result<LayoutPlan> Plan(const EngineOptions& options) {
  return PlanLayout(options, *model::LoadBuiltinConfig("Llama-3.1-70B"));
}

TEST(ShiftPlan, ModesAreAllSplitsThatKeepTheLayoutsTp) {
  EXPECT_THAT(ModesOf({8, 1}, false),
              ElementsAre(Degrees{8, 1}, Degrees{4, 2}, Degrees{2, 4}, Degrees{1, 8}));
  EXPECT_THAT(ModesOf({8, 1}, true), ElementsAre(Degrees{8, 1}, Degrees{1, 8}));
  EXPECT_THAT(ModesOf({2, 4}, false), ElementsAre(Degrees{2, 4}, Degrees{1, 8}));
  EXPECT_THAT(ModesOf({3, 2}, false), ElementsAre(Degrees{3, 2}, Degrees{1, 6}));
}

// Few rows are for tp alone, many for sp; prices of the modes cross in between, and the table takes
// the cheapest at each number of rows.
TEST(ShiftPlan, TheTableIsTheCheapestModeOfEachStep) {
  const auto plan = Plan(Options("sp=4,tp=2"));
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const ShiftPlan& shift = plan->shift;
  ASSERT_GT(shift.prices.size(), 20u);
  for (const ModePrices& price : shift.prices) {
    const StepMode mode = shift.table.Shift({}, price.rows, 0);
    const Degrees& best = shift.modes[price.best];
    EXPECT_EQ((Degrees{mode.sp, mode.tp}), best) << price.rows;
    for (const double seconds : price.seconds) EXPECT_GE(seconds, price.seconds[price.best]);
  }
  EXPECT_EQ(shift.modes[shift.prices.front().best], (Degrees{1, 8}));
  EXPECT_EQ(shift.modes[shift.prices.back().best], (Degrees{4, 2}));
}

// Views take tables, and no weights.
TEST(ShiftPlan, ModesTakeNoFurtherWeightBytes) {
  EngineOptions one = Options("sp=4,tp=2"), all = one;
  one.shift.mode = Degrees{4, 2};
  const auto alone = Plan(one), shifting = Plan(all);
  ASSERT_TRUE(alone.ok() && shifting.ok());
  for (size_t rank = 0; rank < 8; ++rank) {
    const MemoryPlan &a = alone->ranks[rank].memory, &b = shifting->ranks[rank].memory;
    EXPECT_EQ(a.bytes(RegionUse::kWeights), b.bytes(RegionUse::kWeights));
    EXPECT_TRUE(a.views.empty());
    EXPECT_EQ(b.views.size(), shifting->shift.ModesInUse(1 << 20).size() - 1);
    EXPECT_GT(b.bytes(RegionUse::kTables), a.bytes(RegionUse::kTables));
    EXPECT_LT(b.bytes(RegionUse::kTables), a.bytes(RegionUse::kWeights) / 1000);
  }
}

TEST(ShiftPlan, ThresholdsAndForcedModes) {
  EngineOptions options = Options("sp=8");
  options.shift.threshold = 256;
  auto plan = Plan(options);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const auto used = plan->shift.ModesInUse(1000);
  ASSERT_EQ(used.size(), 2u);
  EXPECT_EQ(used[0].mode, (Degrees{1, 8}));
  EXPECT_EQ(used[0].rows, 256);
  EXPECT_EQ(used[1].mode, (Degrees{8, 1}));
  EXPECT_EQ(used[1].rows, 1000);
  EXPECT_EQ(plan->shift.table.Shift({}, 257, 0).sp, 8);
  options.shift = {.mode = Degrees{2, 4}};
  plan = Plan(options);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->shift.table.Shift({}, 1, 0).tp, 4);
}

TEST(ShiftPlan, RefusalsNameTheNumbersThatDisagree) {
  const auto refused = [](const char* layout, const ShiftOptions& shift, const char* a,
                          const char* b) {
    EngineOptions options = Options(layout);
    options.shift = shift;
    const auto plan = Plan(options);
    ASSERT_FALSE(plan.ok()) << layout;
    EXPECT_EQ(plan.status().code(), kShiftInvalid) << layout;
    EXPECT_THAT(plan.status().message(), testing::AllOf(HasSubstr(a), HasSubstr(b)));
  };
  refused("tp=8", {.mode = Degrees{1, 8}}, "--shift-mode 1x8", "sp=1, tp=8");
  refused("tp=8", {.threshold = 64}, "--shift-parallel-threshold 64", "sp=1");
  refused("dp=8", {.ends = true}, "--shift-modes ends", "sp=1");
  refused("sp=4,tp=2", {.mode = Degrees{8, 1}}, "--shift-mode 8x1", "expected 4x2, 2x4, 1x8");
  refused("sp=8", {.mode = Degrees{8, 1}, .threshold = 9}, "8x1", "threshold 9");
  EXPECT_EQ(ParseShiftMode("8x").status().code(), base::kInvalidArgument);
  EXPECT_EQ(ParseShiftMode("0x8").status().code(), base::kInvalidArgument);
  EXPECT_EQ(**ParseShiftMode("4x2"), (Degrees{4, 2}));
  EXPECT_FALSE(ParseShiftMode("auto")->has_value());
}

}  // namespace
}  // namespace forebay::layout
