#include "layout/shift_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "choose/decide.h"
#include "model/builtin_configs.h"

namespace forebay::choose {
namespace {

using model::Degrees;
using testing::ElementsAre;
using testing::HasSubstr;

layout::EngineOptions Options(const char* layout) {
  layout::EngineOptions options{.model = "builtin:Llama-3.1-70B"};
  options.machine.devices = *layout::ParseDevices("sim:8xh200");
  options.layout = *layout::ParseLayout(layout);
  return options;
}

base::Result<Decision> Plan(const layout::EngineOptions& options) {
  return Decide(options, *model::LoadBuiltinConfig("Llama-3.1-70B"));
}

TEST(ShiftChoice, ModesAreAllSplitsThatKeepTheLayoutsTp) {
  EXPECT_THAT(layout::ModesOf({8, 1}, false),
              ElementsAre(Degrees{8, 1}, Degrees{4, 2}, Degrees{2, 4}, Degrees{1, 8}));
  EXPECT_THAT(layout::ModesOf({8, 1}, true), ElementsAre(Degrees{8, 1}, Degrees{1, 8}));
  EXPECT_THAT(layout::ModesOf({2, 4}, false), ElementsAre(Degrees{2, 4}, Degrees{1, 8}));
  EXPECT_THAT(layout::ModesOf({3, 2}, false), ElementsAre(Degrees{3, 2}, Degrees{1, 6}));
}

// Few rows are for tp alone, many for sp; prices of the modes cross in between, and the table takes
// the cheapest at each number of rows.
TEST(ShiftChoice, TheTableIsTheCheapestModeOfEachStep) {
  const auto plan = Plan(Options("sp=4,tp=2"));
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const layout::ShiftPlan& shift = plan->shift;
  ASSERT_GT(plan->mode_prices.size(), 20u);
  for (const ModePrices& price : plan->mode_prices) {
    const Degrees taken = shift.table.Shift({}, price.rows, 0).degrees;
    const Degrees& best = shift.modes[price.best];
    EXPECT_EQ(taken, best) << price.rows;
    for (const double seconds : price.seconds) EXPECT_GE(seconds, price.seconds[price.best]);
  }
  EXPECT_EQ(shift.modes[plan->mode_prices.front().best], (Degrees{1, 8}));
  EXPECT_EQ(shift.modes[plan->mode_prices.back().best], (Degrees{4, 2}));
}

// Where tp alone and sp alone cost as much, in FP8: by the tables, whose kernels change at so many
// elements; four numbers an octave. Where modes between may be taken they are, around there.
TEST(ShiftChoice, CrossingsAreThoseOfTheTables) {
  const auto shift = [](const char* model, bool bf16_wire, layout::ModeChoice among) {
    layout::EngineOptions options = Options("sp=8");
    options.machine.quantization.format = cost::NumberFormat::kFP8;
    options.machine.tp_wire_bf16 = bf16_wire;
    options.shift.among = among;
    return *Decide(options, *model::LoadBuiltinConfig(model));
  };
  const auto crossing = [&](const char* model, bool bf16_wire) {
    const auto found = shift(model, bf16_wire, layout::ModeChoice::kEnds).shift.table.entries;
    EXPECT_EQ(found.size(), 2u);
    return found.front().most_rows + 1;
  };
  EXPECT_EQ(crossing("Llama-3.1-70B", false), 384);
  EXPECT_EQ(crossing("Llama-3.1-70B", true), 512);
  EXPECT_EQ(crossing("Qwen3-32B", false), 320);
  EXPECT_EQ(crossing("Qwen3-32B", true), 448);
  std::vector<std::pair<int, int64_t>> up_to;  // sp, and the most rows
  const Decision all = shift("Llama-3.1-70B", false, layout::ModeChoice::kAll);
  for (const schedule::ShiftEntry& entry : all.shift.table.entries)
    up_to.emplace_back(entry.degrees.sp, entry.most_rows);
  EXPECT_THAT(up_to,
              ElementsAre(testing::Pair(1, 95), testing::Pair(2, 319), testing::Pair(4, 1023),
                          testing::Pair(8, std::numeric_limits<int64_t>::max())));
  // What the modes between save of the better end's step, host time and head with it.
  for (const auto& [rows, part] : {std::pair{256, 0.20}, {512, 0.14}}) {
    const auto at = std::ranges::find(all.mode_prices, rows, &ModePrices::rows);
    ASSERT_NE(at, all.mode_prices.end());
    const double better_end = std::min(at->seconds.front(), at->seconds.back());
    EXPECT_NEAR(1 - at->seconds[at->best] / better_end, part, 0.01) << rows;
  }
}

// Views take tables, and no weights.
TEST(ShiftChoice, ModesTakeNoFurtherWeightBytes) {
  layout::EngineOptions one = Options("sp=4,tp=2"), all = one;
  one.shift.mode = Degrees{4, 2};
  const auto alone = Plan(one), shifting = Plan(all);
  ASSERT_TRUE(alone.ok() && shifting.ok());
  for (size_t rank = 0; rank < 8; ++rank) {
    const layout::MemoryPlan &a = alone->ranks[rank].memory, &b = shifting->ranks[rank].memory;
    EXPECT_EQ(a.bytes(layout::RegionUse::kWeights), b.bytes(layout::RegionUse::kWeights));
    EXPECT_TRUE(a.views.empty());
    EXPECT_EQ(b.views.size(), shifting->shift.ModesInUse(1 << 20).size() - 1);
    EXPECT_GT(b.bytes(layout::RegionUse::kTables), a.bytes(layout::RegionUse::kTables));
    EXPECT_LT(b.bytes(layout::RegionUse::kTables), a.bytes(layout::RegionUse::kWeights) / 1000);
  }
}

TEST(ShiftChoice, ThresholdsAndForcedModes) {
  layout::EngineOptions options = Options("sp=8");
  options.shift.threshold = 256;
  auto plan = Plan(options);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const auto used = plan->shift.ModesInUse(1000);
  ASSERT_EQ(used.size(), 2u);
  EXPECT_EQ(used[0].mode, (Degrees{1, 8}));
  EXPECT_EQ(used[0].rows, 256);
  EXPECT_EQ(used[1].mode, (Degrees{8, 1}));
  EXPECT_EQ(used[1].rows, 1000);
  EXPECT_EQ(plan->shift.table.Shift({}, 257, 0).degrees.sp, 8);
  options.shift = {.mode = Degrees{2, 4}};
  plan = Plan(options);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->shift.table.Shift({}, 1, 0).degrees.tp, 4);
}

TEST(ShiftChoice, RefusalsNameTheNumbersThatDisagree) {
  const auto refused = [](const char* layout, const layout::ShiftOptions& shift, const char* a,
                          const char* b) {
    layout::EngineOptions options = Options(layout);
    options.shift = shift;
    const auto plan = Plan(options);
    ASSERT_FALSE(plan.ok()) << layout;
    EXPECT_EQ(plan.status().code(), layout::kShiftInvalid) << layout;
    EXPECT_THAT(plan.status().message(), testing::AllOf(HasSubstr(a), HasSubstr(b)));
  };
  refused("tp=8", {.mode = Degrees{1, 8}}, "--shift-mode 1x8", "sp=1, tp=8");
  refused("tp=8", {.threshold = 64}, "--shift-parallel-threshold 64", "sp=1");
  refused("dp=8", {.among = layout::ModeChoice::kEnds}, "--shift-modes ends", "sp=1");
  refused("tp=8", {.among = layout::ModeChoice::kAll}, "--shift-modes all", "sp=1, tp=8");
  refused("sp=4,tp=2", {.mode = Degrees{8, 1}}, "--shift-mode 8x1", "expected 4x2, 2x4, 1x8");
  refused("sp=8", {.mode = Degrees{8, 1}, .threshold = 9}, "8x1", "threshold 9");
  refused("tp=8", {.copies_weights = true}, "--shift-weights copy", "sp=1, tp=8");
  refused("sp=8", {.among = layout::ModeChoice::kAll, .copies_weights = true}, "--shift-modes all",
          "3 further models");
  refused("sp=8", {.mode = Degrees{8, 1}, .copies_weights = true}, "--shift-weights copy", "8x1");
  refused("sp=8,weights=striped", {.among = layout::ModeChoice::kAll},
          "--shift-modes all with weights=striped", "2 of the 4");
  refused("sp=8,weights=striped", {.copies_weights = true}, "--shift-weights copy", "sp=8");
  // As many KV heads as ranks.
  refused("sp=8", {.two_step_kv = true}, "--kv-replication two-step with sp=8", "8 KV heads");
  refused("tp=8", {.two_step_kv = true}, "--kv-replication two-step", "sp=1, tp=8");
}

// A second model beside the layout's: of all that modes cut, an eighth with sp=8. KV pays for it.
TEST(ShiftChoice, CopiesTakeASecondModel) {
  layout::EngineOptions options = Options("sp=8");
  options.machine.quantization.format = cost::NumberFormat::kFP8;
  options.shift.threshold = 256;
  const auto views = Plan(options);
  options.shift.copies_weights = true;
  const auto copy = Plan(options);
  ASSERT_TRUE(views.ok() && copy.ok());
  const layout::MemoryPlan &a = views->ranks[0].memory, &b = copy->ranks[0].memory;
  EXPECT_EQ(a.bytes(layout::RegionUse::kModeWeights), 0u);
  EXPECT_EQ(a.bytes(layout::RegionUse::kWeights), b.bytes(layout::RegionUse::kWeights));
  uint64_t cut = 0;
  for (const model::LayerPlan& layer : a.decoder->layers) {
    for (const model::PlannedMatrix& matrix : layer.matrices) cut += matrix.plan.TileBytes();
  }
  EXPECT_NEAR(static_cast<double>(b.bytes(layout::RegionUse::kModeWeights)),
              static_cast<double>(cut) / 8, 0.01 * static_cast<double>(cut));
  const double kv = static_cast<double>(a.kv_tokens()) / static_cast<double>(b.kv_tokens());
  EXPECT_NEAR(kv, 1.16, 0.02);
  EXPECT_EQ(copy->shift.modes.size(), 2u);  // the ends
}

// Each of eight ranks holds an eighth of the FFN, and pulls the rest in steps of sp=8: KV gets the
// room. A fetch is hidden behind many rows, and such steps go to tp alone below that.
TEST(ShiftChoice, APoolAlongSpIsHiddenBehindManyRows) {
  layout::EngineOptions options = Options("sp=8");
  options.machine.quantization.format = cost::NumberFormat::kFP8;
  const auto copies = Plan(options);
  options.layout = *layout::ParseLayout("sp=8,weights=striped,pool=80");
  const auto pooled = Plan(options);
  ASSERT_TRUE(copies.ok()) << copies.status().ToString();
  ASSERT_TRUE(pooled.ok()) << pooled.status().ToString();
  const auto kv = [](const layout::LayoutPlan& plan) {
    return static_cast<double>(plan.ranks[0].memory.kv_tokens());
  };
  EXPECT_NEAR(kv(*pooled) / kv(*copies), 1.75, 0.05);
  EXPECT_EQ(pooled->shift.modes.size(), 2u);
  EXPECT_TRUE(pooled->shift.table.pooled);
  EXPECT_NEAR(pooled->mode_prices.front().seconds.front(), 0.137, 0.01);  // a fetch
  const auto& entries = pooled->shift.table.entries;
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].degrees.sp, 1);
  EXPECT_GT(entries[0].most_rows, copies->shift.table.entries[0].most_rows);
  // The most layers that a full step hides.
  options.layout = *layout::ParseLayout("sp=8,weights=striped");
  int64_t before = 0;
  for (const int32_t rows : {1024, 4096, 16384}) {
    options.limits.max_num_batched_tokens = rows;
    const auto chosen = Plan(options);
    ASSERT_TRUE(chosen.ok()) << chosen.status().ToString();
    EXPECT_GT(chosen->layout.pool_layers, before) << rows;
    before = *chosen->layout.pool_layers;
  }
  EXPECT_EQ(before, 80);
}

// A price of simulated ranks that add sums, and of nothing else: tp gets cheaper, sp stays.
TEST(ShiftChoice, SumsInBf16AreAPriceOfSimulatedRanks) {
  layout::EngineOptions options = Options("sp=8");
  const auto exact = Plan(options);
  options.machine.tp_wire_bf16 = true;
  const auto bf16 = Plan(options);
  ASSERT_TRUE(exact.ok() && bf16.ok());
  const ModePrices &a = exact->mode_prices.back(), &b = bf16->mode_prices.back();
  EXPECT_EQ(a.seconds.front(), b.seconds.front());
  EXPECT_GT(a.seconds.back(), 1.05 * b.seconds.back());
  const auto refused = [&](const char* devices, const char* layout, const char* found) {
    options.machine.devices = *layout::ParseDevices(devices);
    options.layout = *layout::ParseLayout(layout);
    const base::Status status = Plan(options).status();
    EXPECT_EQ(status.code(), base::kInvalidArgument);
    EXPECT_THAT(status.message(),
                testing::AllOf(HasSubstr("--sim-tp-wire bf16"), HasSubstr(found)));
  };
  refused("2xcpu", "tp=2", "real devices");
  refused("sim:8xh200", "dp=8", "sp=1, tp=1");
}

TEST(ShiftChoice, RealLinksAreNoQueues) {
  layout::EngineOptions options = Options("tp=2");
  options.machine.devices = *layout::ParseDevices("2xcpu");
  options.machine.source_queues = true;
  EXPECT_THAT(Plan(options).status().message(), HasSubstr("--sim-links queue on real devices"));
}

TEST(ShiftChoice, PoolsAlongSpAreStripesOfTheFfn) {
  for (const char* layout : {"sp=8,weights=by_layer", "sp=8,weights=sharded",
                             "sp=8,weights=striped,pool-attention=on"}) {
    const base::Status status = Plan(Options(layout)).status();
    EXPECT_EQ(status.code(), layout::kLayoutPool) << layout;
    EXPECT_THAT(status.message(),
                testing::AllOf(HasSubstr("beside sp=8"), HasSubstr("expected weights=striped")));
  }
}

}  // namespace
}  // namespace forebay::choose
