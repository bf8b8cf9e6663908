#include "price/mode_price.h"

#include <gtest/gtest.h>

#include "choose/decide.h"
#include "model/builtin_configs.h"

namespace forebay::choose {
namespace {

struct Cell {
  const char *device, *model;
  int ranks;
  int64_t prompt;
  int32_t rows;
};

layout::EngineOptions OptionsOf(const Cell& cell, const char* routing = "power:1.2") {
  layout::EngineOptions options{.model = std::string("builtin:") + cell.model};
  options.machine.devices =
      *layout::ParseDevices("sim:" + std::to_string(cell.ranks) + "x" + cell.device);
  options.machine.memory_bytes = uint64_t{1} << 50;
  options.machine.routing = *model::ParseRouting(routing, 17);
  options.layout = layout::Layout{.dp = cell.ranks, .experts = {&weights::kByExpert}};
  options.limits.max_num_batched_tokens = cell.rows;
  options.limits.max_num_seqs = 256;
  options.limits.max_model_len = cell.prompt + 32;
  options.limits.mean_context = cell.prompt;
  options.ship.rounds.expert_rows = 8192;
  return options;
}

base::Result<layout::GroupOptions> GroupOf(const Cell& cell) {
  const layout::EngineOptions options = OptionsOf(cell);
  FB_ASSIGN_OR_RETURN(const layout::LayoutPlan plan,
                      Decide(options, *model::LoadBuiltinConfig(cell.model)));
  if (!plan.group) return base::Status(base::kInvalidArgument, "the ranks do not meet");
  return *plan.group;
}

// Whether full steps of prompts ship, as `forebay repro dwdp --table` simulated which is sooner
// (bench/results/dwdp.md); its closest cells are left out.
TEST(ModePrice, FullStepsOfPromptsTakeTheFasterMode) {
  struct Case {
    Cell cell;
    bool ships;
  };
  constexpr const char *kFp4 = "DeepSeek-R1-NVFP4", *kFp8 = "DeepSeek-R1-FP8";
  const Case cases[] = {
      {{"gb200-nvl72", kFp4, 3, 1024, 8192}, false},
      {{"gb200-nvl72", kFp4, 3, 1024, 16384}, false},
      {{"gb200-nvl72", kFp4, 4, 1024, 8192}, false},
      {{"gb200-nvl72", kFp4, 4, 1024, 16384}, false},
      {{"gb200-nvl72", kFp4, 4, 8192, 32768}, false},
      {{"gb200-nvl72", kFp4, 8, 1024, 8192}, false},
      {{"gb200-nvl72", kFp4, 8, 1024, 32768}, false},
      {{"b200", kFp4, 4, 1024, 8192}, true},
      {{"b200", kFp4, 8, 1024, 16384}, false},
      {{"h200", kFp8, 8, 1024, 8192}, true},
      {{"h200", kFp8, 8, 8192, 16384}, false},
      {{"h200", kFp8, 8, 32768, 8192}, false},
  };
  for (const Case& c : cases) {
    const auto group = GroupOf(c.cell);
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    EXPECT_EQ(!group->by_load, c.ships)
        << c.cell.device << " x" << c.cell.ranks << " " << c.cell.prompt << " " << c.cell.rows;
    // Steps that decode ship, and soon.
    EXPECT_GT(group->load.threshold, 256);
    if (group->by_load) {
      EXPECT_EQ(group->load.patience, 1);  // who pulls takes more than twice as long
    }
  }
}

// Who ships waits for the rank with most rows, so that unlike ranks ship fewer of them.
TEST(ModePrice, UnlikeRanksShipFewerRows) {
  for (const int64_t prompt : {1024, 8192, 32768}) {
    const auto group = GroupOf({"gb200-nvl72", "DeepSeek-R1-NVFP4", 4, prompt, 16384});
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    ASSERT_TRUE(group->by_load);
    const schedule::LoadRule& rule = group->load;
    schedule::LoadRule::Tolerated before{.rows = rule.threshold};
    for (const schedule::LoadRule::Tolerated& each : rule.tolerated) {
      EXPECT_LT(each.rows, before.rows) << prompt;
      EXPECT_GT(each.rows, 0);
      EXPECT_GE(each.spread, before.spread);
      before = each;
    }
    EXPECT_GT(before.spread, 0) << prompt;
    EXPECT_EQ(rule.Threshold(0), rule.threshold);
    EXPECT_LT(rule.Threshold(3), rule.threshold);
    EXPECT_LT(rule.Threshold(30), rule.Threshold(3));
  }
}

// Rounds are as large as a part of memory stages, where nobody says how large.
TEST(ModePrice, RoundsOfExpertsFitIntoAPartOfMemory) {
  const auto rows = [](uint64_t memory, int32_t wanted) {
    constexpr Cell kCell{"gb200-nvl72", "DeepSeek-R1-NVFP4", 3, 1024, 32768};
    layout::EngineOptions options = OptionsOf(kCell);
    options.machine.memory_bytes = 3 * memory;
    options.ship.rounds.expert_rows = wanted;
    return Decide(options, *model::LoadBuiltinConfig(kCell.model))
        ->ranks[0]
        .request.pool[0]
        .ship->options.expert_rows;
  };
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(rows(1024 * kGiB, 0), 8192);
  EXPECT_EQ(rows(160 * kGiB, 0), 2048);
  EXPECT_EQ(rows(160 * kGiB, 8192), 8192);
}

// Where several ranks hold an expert, the one with fewer rows computes.
TEST(ModePrice, RedundancyLevelsTheRowsOfRanksThatShip) {
  constexpr Cell kCell{"gb200-nvl72", "DeepSeek-R1-NVFP4", 4, 1024, 8192};
  layout::EngineOptions options = OptionsOf(kCell);
  const model::ModelConfig config = *model::LoadBuiltinConfig(kCell.model);
  const auto busiest = [&](int64_t size) {
    options.layout->expert_size = size;
    const auto plan = Decide(options, config);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return price::RoutedExperts(config, options.machine.routing.get())
        .Busiest(*plan->ranks[0].request.pool[0].ship, 1024)
        .rows;
  };
  const double least = busiest(64), more = busiest(94);
  EXPECT_GT(least, 1.05);
  EXPECT_LT(more, least - .05);
}

// Rows whose experts are at home stay there: what two ranks hold, two ranks read, each for its own.
TEST(ModePrice, WhatManyHoldIsReadByMany) {
  constexpr Cell kCell{"h20", "Qwen3-30B-A3B", 4, 512, 2048};
  layout::EngineOptions options = OptionsOf(kCell, "balanced");
  const model::ModelConfig config = *model::LoadBuiltinConfig(kCell.model);
  const auto shipped = [&](int64_t size) {
    options.layout->expert_size = size;
    const auto plan = Decide(options, config);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    const price::StepPricer pricer(config, plan->dtype, {}, plan->ranks[0].memory.capacity,
                                   plan->machine.profile, {});
    const price::StepPrice own = pricer.Decode(15, 512);
    return price::ShippedSeconds(pricer, *plan->ranks[0].request.pool[0].ship, own, 15, {60, 4}) -
           own.all().seconds + own.experts.seconds;
  };
  // 15 rows touch 78 of 128 experts, the 60 of all ranks 125, of which each has a fourth.
  EXPECT_GT(shipped(125) / shipped(32), 2);
  EXPECT_LT(shipped(125) / shipped(32), 4);
}

}  // namespace
}  // namespace forebay::choose
