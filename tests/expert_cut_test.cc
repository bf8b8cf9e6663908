// Experts cut over the ranks of a replica: the same answers, digests included, as one rank gives.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "choose/decide.h"
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

  int64_t Counter(const std::string& name) { return stats_.mode_counters[name]; }

  // Experts of a layer that a replica's ranks lack of their parts, all together.
  int64_t Lacked(const layout::Layout& layout) const {
    int64_t lacked = 0;
    for (int t = 0; t < layout.tp; ++t) {
      const int64_t part =
          model::ExpertsOf(files_.config, layout.degrees(), layout.degrees(), t).size();
      lacked += part - (*layout.expert_size > 0 ? *layout.expert_size
                                                : weights::ExpertSizes(part, layout.dp).front());
    }
    return lacked;
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

// A tp rank's part of the experts lies over the replicas, which pull of it what they lack, or send
// rows to it; the replica's ranks meet once a layer all the same.
TEST_P(ExpertCutTest, PartsThatReplicasShareGiveTheSameDigests) {
  requests_.resize(10);
  const Answers expected = Run("cpu", "");
  const uint64_t alone = weight_bytes_;
  struct Case {
    const char* layout;
    std::vector<StepMode> modes;
  };
  std::vector<Case> cases = {{"tp=2", {kPull}},
                             {"dp=2,tp=2", {kPull, kRouted, kShip, kGather}},
                             {"dp=2,tp=2,pp=2", {kPull}}};
  if (wide_) {
    cases.insert(cases.end(), {{"dp=2,tp=2,expert-size=4", {kPull, kRouted, kShip}},
                               {"dp=3,tp=2", {kPull, kShip}},
                               // more ranks than a collective takes
                               {"dp=10", {kPull, kShip}},
                               // parts of two and three
                               {"dp=2,tp=4", {kPull, kRouted, kShip}}});
  }
  for (const auto& [text, modes] : cases) {
    const layout::Layout layout = *layout::ParseLayout(fmt::format("{},experts=by_expert", text));
    for (const StepMode& mode : modes) {
      SCOPED_TRACE(fmt::format("{} {}", text, schedule::Name(mode)));
      options_.ship.mode = mode;
      options_.ship.rounds.expert_rows = layout.expert_size == 0 ? 5 : 2048;
      EXPECT_EQ(Run(fmt::format("{}xcpu", layout.num_devices()), FormatLayout(layout)), expected);
      EXPECT_TRUE(mode_status_.ok()) << mode_status_.ToString();
      EXPECT_LT(weight_bytes_, alone * static_cast<uint64_t>(layout.num_devices()));
      EXPECT_EQ(Counter("rows_routed"), RowsRouted());
      EXPECT_EQ(Counter(schedule::StepsCounter(mode)), stats_.steps * layout.tp * layout.pp);
      const bool ships = mode == kShip;
      EXPECT_EQ(Counter("expert_rows_sent") > 0, ships);
      EXPECT_EQ(Counter("ship_meetings") > 0, mode.meets());
      EXPECT_EQ(Counter("bytes_expert_rows"),
                ships ? 0 : (layout.tp - 1) * RowsRouted() * files_.config.hidden_size * 2);
      if (mode == kPull) {
        EXPECT_EQ(Counter("bytes_pulled") - Counter("bytes_pulled_ahead"),
                  stats_.steps * ExpertLayers() * Lacked(layout) * ExpertBytes());
      }
      if (mode == kRouted) {
        EXPECT_GT(Counter("bytes_routed"), 0);
        EXPECT_EQ(Counter("bytes_routed"), Counter("bytes_pulled"));
      }
    }
  }
}

TEST_P(ExpertCutTest, PartsComeInAnyFormAndModesMayFlip) {
  requests_.resize(10);
  constexpr const char *kDevices = "4xcpu", *kLayout = "dp=2,tp=2,experts=by_expert";
  const Answers expected = Run("cpu", "");
  options_.pool.by_matrix = true;
  EXPECT_EQ(Run(kDevices, kLayout), expected);
  options_.pool.by_matrix = false;
  options_.pool.merges_experts = true;
  EXPECT_EQ(Run(kDevices, kLayout), expected);
  options_.pool.merges_experts = false;
  options_.pool.waits_by_part = true;
  EXPECT_EQ(Run(kDevices, kLayout), expected);
  options_.trial.flip_every = 2;
  for (const StepMode& mode : {kRouted, kShip}) {
    options_.ship.mode = mode;
    EXPECT_EQ(Run(kDevices, kLayout), expected) << schedule::Name(mode);
    EXPECT_GT(Counter("steps_pull"), 0);
    EXPECT_GT(Counter(schedule::StepsCounter(mode)), 0);
  }
}

TEST_P(ExpertCutTest, RanksThatCutRowsGiveTheSameDigests) {
  if (files_.config.mla) GTEST_SKIP() << "latent attention is not cut along sp";
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

// Shift Parallelism's future work: ranks that cut rows hold an equal part of the experts each, and
// pull the others, but for steps in which each computes with its part alone.
TEST_P(ExpertCutTest, RanksThatCutRowsMayShareTheExperts) {
  if (files_.config.mla) GTEST_SKIP() << "latent attention is not cut along sp";
  const Answers expected = Run("cpu", "");
  std::vector<const char*> layouts = {"sp=2"};
  if (wide_) layouts.insert(layouts.end(), {"sp=5", "dp=2,sp=2"});
  for (const char* text : layouts) {
    SCOPED_TRACE(text);
    const layout::Layout layout = *layout::ParseLayout(fmt::format("{},experts=by_expert", text));
    const std::string devices = fmt::format("{}xcpu", layout.num_devices());
    EXPECT_EQ(Run(devices, text), expected);
    const uint64_t of_copies = weight_bytes_;
    for (const model::Degrees& mode : layout::ModesOf(layout.degrees(), true)) {
      options_.shift.mode = mode;
      EXPECT_EQ(Run(devices, layout::FormatLayout(layout)), expected) << layout::FormatMode(mode);
      EXPECT_EQ(Counter("rows_routed"), RowsRouted());
      EXPECT_EQ(Counter("bytes_pulled") > 0, mode.sp > 1);
      EXPECT_LT(weight_bytes_, of_copies);
    }
    options_.shift.mode.reset();
    options_.trial.shift_every = 1;
    EXPECT_EQ(Run(devices, layout::FormatLayout(layout)), expected) << "shifted at each step";
    EXPECT_GT(Counter("shift_switches"), 0);
    options_.trial.shift_every = 0;
  }
}

TEST_P(ExpertCutTest, WhatCannotBeIsRefused) {
  for (const auto& [devices, layout, expected] :
       {std::tuple{"16xcpu", "tp=16", "layout_experts"},
        {"18xcpu", "dp=9,tp=2,experts=by_expert", "placement_cannot"},
        {"4xcpu", "dp=2,tp=2,experts=by_expert,expert-size=9", "placement_cannot"},
        {"2xcpu", "sp=2,experts=by_expert,expert-size=3",
         files_.config.mla ? "layout_experts" : "layout_pool"}}) {
    options_.machine.devices = *layout::ParseDevices(devices);
    options_.layout = *layout::ParseLayout(layout);
    EXPECT_EQ(choose::Decide(options_, files_.config).status().code(), base::ErrorCode{expected})
        << layout;
  }
  if (!wide_) return;
  options_.machine.devices = *layout::ParseDevices("8xcpu");
  const auto refusal = [&](const char* layout) {
    options_.layout = *layout::ParseLayout(layout);
    return choose::Decide(options_, files_.config).status();
  };
  EXPECT_THAT(refusal("dp=2,tp=4,experts=by_expert,expert-size=2").ToString(),
              testing::HasSubstr("tp=4, whose rank 2 has experts 6 to 7: expert-size=2: 2 ranks"));
  EXPECT_THAT(refusal("dp=2,tp=4,experts=by_expert,expert-size=auto").ToString(),
              testing::HasSubstr("dp=2,tp=4: the parts of the experts are not alike"));
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertCutTest,
                         testing::Values("qwen3-moe", "mixtral", "llama4-text", "deepseek-v3"));

}  // namespace
}  // namespace forebay
