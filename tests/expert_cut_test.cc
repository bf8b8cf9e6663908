// Experts cut over the ranks of a replica: the same answers, digests included, as one rank gives.
#include <filesystem>
#include <fstream>

#include "testing/layout_fixture.h"

namespace forebay {
namespace {

// A Qwen3-MoE of 10 experts, 2 a row; heads and columns enough for 8 ranks.
class ExpertCutTest : public LayoutTest {
 protected:
  ExpertCutTest() {
    if (GetParam() != "qwen3-moe") return;
    const std::string path = std::filesystem::path(testing::TempDir()) / "experts.json";
    std::ofstream(path) << R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
        "vocab_size": 5000, "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 3,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16, "hidden_act": "silu",
        "max_position_embeddings": 512, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
        "num_experts": 10, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
        "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [1],
        "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";
    files_ = std::move(*engine::OpenModel(path, true, 5));
    wide_ = true;
  }

  int64_t RowsRouted() const {
    const model::MoeConfig& moe = *files_.config.moe;
    return stats_.computed_tokens * moe.experts_per_token * std::ranges::count(moe.has_experts, 1);
  }

  bool wide_ = false;
};

TEST_P(ExpertCutTest, RanksWithTheirPartOfTheExpertsGiveTheSameDigests) {
  const Answers expected = Run("cpu", "");
  const uint64_t alone = weight_bytes_;
  std::vector<const char*> layouts = {"tp=2", "dp=2,tp=2", "tp=2,pp=2"};
  if (wide_) layouts.insert(layouts.end(), {"tp=4", "tp=8", "groups=2,tp=2"});
  for (const char* text : layouts) {
    const layout::Layout layout = *layout::ParseLayout(text);
    EXPECT_EQ(Run(fmt::format("{}xcpu", layout.num_devices()), text), expected) << text;
    EXPECT_EQ(stats_.mode_counters["rows_routed"], RowsRouted()) << text;
    // All ranks but one read each row that an expert made.
    EXPECT_EQ(stats_.mode_counters["bytes_expert_rows"],
              (layout.tp - 1) * RowsRouted() * files_.config.hidden_size * 2)
        << text;
    EXPECT_LT(weight_bytes_, alone * static_cast<uint64_t>(layout.num_devices())) << text;
  }
}

TEST_P(ExpertCutTest, RanksThatCutRowsGiveTheSameDigests) {
  const Answers expected = Run("cpu", "");
  std::vector<const char*> layouts = {"sp=2"};
  if (wide_) layouts.insert(layouts.end(), {"sp=4", "sp=2,tp=2", "sp=8", "dp=2,sp=2"});
  for (const char* text : layouts) {
    const layout::Layout layout = *layout::ParseLayout(text);
    const std::string devices = fmt::format("{}xcpu", layout.num_devices());
    for (const model::Degrees& mode : layout::ModesOf(layout.degrees(), false)) {
      options_.shift.mode = mode;
      EXPECT_EQ(Run(devices, text), expected) << text << " as " << layout::FormatMode(mode);
      EXPECT_EQ(stats_.mode_counters["rows_routed"], RowsRouted()) << text;
      EXPECT_EQ(stats_.mode_counters["bytes_expert_rows"],
                (mode.tp - 1) * RowsRouted() * files_.config.hidden_size * 2)
          << text;
    }
    options_.shift.mode.reset();
    options_.trial.shift_every = 1;
    EXPECT_EQ(Run(devices, text), expected) << text << " shifted at each step";
    EXPECT_GT(stats_.mode_counters["shift_switches"], 0) << text;
    options_.trial.shift_every = 0;
  }
}

TEST_P(ExpertCutTest, WhatCannotBeIsRefused) {
  for (const auto& [devices, layout, expected] :
       {std::tuple{"16xcpu", "tp=16", "layout_experts"},
        {"4xcpu", "dp=2,tp=2,experts=by_expert", "layout_pool"},
        {"2xcpu", "sp=2,experts=by_expert", "layout_pool"}}) {
    options_.machine.devices = *layout::ParseDevices(devices);
    options_.layout = *layout::ParseLayout(layout);
    EXPECT_EQ(layout::PlanLayout(options_, files_.config).status().code(),
              base::ErrorCode{expected})
        << layout;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertCutTest,
                         testing::Values("qwen3-moe", "mixtral", "llama4-text"));

}  // namespace
}  // namespace forebay
