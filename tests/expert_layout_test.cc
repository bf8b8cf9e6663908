// Experts that ranks share: pulled or rows shipped to them, with the same answers as one rank
// gives.
#include <gmock/gmock.h>

#include "layout/layout_plan.h"
#include "layout_test_base.h"

namespace forebay {
namespace {

class ExpertLayoutTest : public LayoutTest {};

// DWDP: experts that a rank lacks come a layer ahead, whoever holds how many.
TEST_P(ExpertLayoutTest, PulledExpertsGiveTheSameDigests) {
  const Answers expected = Run("cpu", "");
  const uint64_t alone = weight_bytes_;
  for (const auto& [devices, layout] : ExpertLayouts()) {
    for (const bool by_matrix : {false, true}) {
      for (const int64_t ahead : {1, 3}) {
        options_.pool.by_matrix = by_matrix;
        options_.pool.slots.look_ahead_layers = ahead;
        EXPECT_EQ(Run(devices, layout), expected) << layout << " " << by_matrix << " " << ahead;
        EXPECT_GT(stats_.mode_counters["bytes_pulled"], 0) << layout;
        EXPECT_EQ(stats_.mode_counters["steps_pull"],
                  stats_.steps * layout::ParseLayout(layout)->pp)
            << layout;
        EXPECT_LT(weight_bytes_, alone * static_cast<uint64_t>(layout::ParseLayout(layout)->dp *
                                                               layout::ParseLayout(layout)->groups))
            << layout;
      }
    }
  }
}

// In which order slices come, and whether experts are computed with as they come or out of one
// buffer, changes no digest.
TEST_P(ExpertLayoutTest, PeerOrdersPartsAndMergesGiveTheSameDigests) {
  requests_.resize(8);
  const Answers expected = Run("cpu", "");
  using enum fabric::PeerOrder;
  std::vector<std::pair<const char*, const char*>> layouts = {{"2xcpu", "dp=2,experts=by_expert"},
                                                              {"4xcpu", "dp=4,experts=by_expert"}};
  if (GetParam() == "deepseek-v3")  // has layers without experts
    layouts.emplace_back("2xcpu", "dp=2,experts=by_expert,weights=striped,pool=1");
  for (const auto& [devices, layout] : layouts) {
    for (const auto order : {kRotated, kSliced, kSerial, kRandom}) {
      options_.pool.peers = order;
      for (const auto& [part, merge] : {std::pair{false, false}, {true, false}, {false, true}}) {
        options_.pool.waits_by_part = part;
        options_.pool.merges_experts = merge;
        options_.pool.slice_bytes = order == kSliced ? 1000 : 0;
        EXPECT_EQ(Run(devices, layout), expected)
            << layout << " " << static_cast<int>(order) << " " << part << " " << merge;
        EXPECT_GT(stats_.mode_counters["bytes_pulled"], 0) << layout;
        EXPECT_EQ(stats_.mode_counters["merge_bytes"] > 0, merge) << layout;
      }
    }
  }
}

// DEP: rows go to the experts, in as many rounds as staging needs.
TEST_P(ExpertLayoutTest, ShippedRowsGiveTheSameDigests) {
  const Answers expected = Run("cpu", "");
  const model::MoeConfig& moe = *files_.config.moe;
  EXPECT_EQ(stats_.mode_counters["rows_routed"], stats_.computed_tokens * moe.experts_per_token *
                                                     std::ranges::count(moe.has_experts, 1));
  options_.ship.mode = kShip;
  auto layouts = ExpertLayouts();
  if (moe.num_experts == 8)  // one of them on all four ranks
    layouts.emplace_back("4xcpu", "dp=4,experts=by_expert,expert-size=5");
  for (const auto& [devices, layout] : layouts) {
    for (const int32_t rows : {2, 7, 2048}) {
      options_.ship.rounds.expert_rows = rows;
      EXPECT_EQ(Run(devices, layout), expected) << layout << " " << rows;
      EXPECT_GT(stats_.mode_counters["steps_ship"], 0) << layout;
      EXPECT_GT(stats_.mode_counters["expert_rows_sent"], 0) << layout;
      EXPECT_EQ(
          stats_.mode_counters["rows_routed"],
          stats_.computed_tokens * moe.experts_per_token * std::ranges::count(moe.has_experts, 1))
          << layout;
      EXPECT_GE(stats_.mode_counters["expert_rows_returned"],
                stats_.mode_counters["expert_rows_sent"])
          << layout;
    }
  }
  options_.trial.flip_every = 2;
  EXPECT_EQ(Run("3xcpu", "dp=3,experts=by_expert"), expected);
  EXPECT_GT(stats_.mode_counters["steps_ship"], 0);
  EXPECT_GT(stats_.mode_counters["steps_pull"], 0);
}

TEST_P(ExpertLayoutTest, WhatCannotBeIsRefused) {
  if (files_.config.mla) {
    options_.machine.devices = *layout::ParseDevices("2xcpu");
    options_.layout = *layout::ParseLayout("tp=2");
    EXPECT_EQ(layout::PlanLayout(options_, files_.config).status().code(), model::kLayoutExperts);
  }
  for (const auto& [devices, layout, expected] :
       {std::tuple{"9xcpu", "dp=9,experts=by_expert", "placement_cannot"},
        {"2xcpu", "dp=2,experts=by_expert,expert-size=99", "placement_cannot"},
        {"2xcpu", "dp=2,expert-size=4", "layout_pool"},
        {"2xcpu", "dp=2,experts=striped", "layout_invalid"},
        {"2xcpu", "dp=2,weights=by_expert", "layout_invalid"}}) {
    options_.machine.devices = *layout::ParseDevices(devices);
    const auto parsed = layout::ParseLayout(layout);
    if (parsed.ok()) options_.layout = *parsed;
    const base::Status refused =
        parsed.ok() ? layout::PlanLayout(options_, files_.config).status() : parsed.status();
    EXPECT_EQ(refused.code(), base::ErrorCode{expected}) << layout;
  }
  options_.machine.devices = *layout::ParseDevices("2xcpu");
  const auto refusal = [&](const char* layout) {
    options_.layout = *layout::ParseLayout(layout);
    return layout::PlanLayout(options_, files_.config).status();
  };
  options_.pool.merges_experts = true;
  EXPECT_THAT(refusal("dp=2,weights=by_layer").message(),
              testing::HasSubstr("--expert-merge with experts=replicated; expected"));
  EXPECT_TRUE(refusal("dp=2,experts=by_expert").ok());
  options_.pool.waits_by_part = true;
  EXPECT_THAT(refusal("dp=2,experts=by_expert").message(),
              testing::HasSubstr("--expert-merge with --pool-wait part; expected"));
  options_.pool.merges_experts = false;
  options_.pool.by_matrix = true;
  EXPECT_THAT(refusal("dp=2,experts=by_expert").message(),
              testing::HasSubstr("--pool-wait part with --pool-parts matrix; expected"));
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertLayoutTest,
                         testing::Values("qwen3-moe", "mixtral", "deepseek-v3", "llama4-text"));

}  // namespace
}  // namespace forebay
