// Models whose layers keep states, cut and shared in every way: the answers of one rank, digests
// included.
#include <gmock/gmock.h>

#include "choose/create_engine.h"
#include "layout/plan_checks.h"
#include "runtime/real/real_runtime.h"
#include "testing/layout_fixture.h"

namespace forebay {
namespace {

class StateLayoutTest : public LayoutTest {
 protected:
  bool HasExperts() const { return files_.config.moe.has_value(); }
};

// Heads of the states, stages of their layers; and stages without any attention.
TEST_P(StateLayoutTest, EveryCutGivesTheSameDigests) {
  const Answers expected = Run("cpu", "");
  ASSERT_EQ(expected.size(), static_cast<size_t>(kRequests + (kRequests + 4) / 5));
  for (const auto& [devices, layout] : {std::pair{"2xcpu", "tp=2"},
                                        {"3xcpu", "tp=3"},
                                        {"2xcpu", "pp=2"},
                                        {"3xcpu", "pp=3"},
                                        {"4xcpu", "tp=2,pp=2"},
                                        {"2xcpu", "sp=2"},
                                        {"3xcpu", "sp=3"},
                                        {"4xcpu", "sp=2,tp=2"},
                                        {"4xcpu", "dp=2,tp=2"}}) {
    const layout::Layout parsed = *layout::ParseLayout(layout);
    if (!layout::ValidateLayout(parsed, files_.config, parsed.num_devices()).ok()) continue;
    options_.shift.mode.reset();
    if (parsed.sp > 1) options_.shift.mode = parsed.degrees();
    EXPECT_EQ(Run(devices, layout), expected) << layout;
    EXPECT_EQ(stats_.mode_counters["bytes_all_to_all"] > 0, parsed.sp > 1) << layout;
    EXPECT_EQ(stats_.mode_counters["bytes_all_reduce"] > 0, parsed.tp > 1) << layout;
  }
  // Modes of one layout, in turn.
  options_.shift.mode.reset();
  options_.trial.shift_every = 2;
  EXPECT_EQ(Run("2xcpu", "sp=2"), expected);
  options_.trial.shift_every = 0;
  // Several steps under way, and few blocks.
  options_.limits.steps_in_flight = 2;
  options_.limits.kv_blocks = 9;
  EXPECT_EQ(Run("2xcpu", "pp=2"), expected);
}

TEST_P(StateLayoutTest, SharedWeightsGiveTheSameDigests) {
  const Answers expected = Run("cpu", "");
  if (!HasExperts()) {
    for (const std::string placement : {"by_layer", "striped", "sharded"}) {
      for (const char* attention : {"off", "on"}) {
        const std::string layout =
            fmt::format("dp=2,weights={},pool-attention={}", placement, attention);
        EXPECT_EQ(Run("2xcpu", layout), expected) << layout;
        EXPECT_GT(stats_.mode_counters["bytes_pulled"], 0) << layout;
      }
    }
    EXPECT_EQ(Run("4xcpu", "dp=2,tp=2,weights=by_layer"), expected);
    EXPECT_EQ(Run("4xcpu", "dp=2,pp=2,weights=by_layer,pool-attention=on"), expected);
    options_.ship.mode = kShip;
    for (const char* layout : {"dp=2,weights=striped", "dp=2,weights=by_layer"}) {
      EXPECT_EQ(Run("2xcpu", layout), expected) << layout;
      EXPECT_GT(stats_.mode_counters["rows_shipped"], 0) << layout;
    }
    return;
  }
  for (const StepMode& mode : {kPull, kShip, kRouted}) {
    options_.ship.mode = mode;
    for (const auto& [devices, layout] : ExpertLayouts()) {
      EXPECT_EQ(Run(devices, layout), expected) << layout << " " << schedule::Name(mode);
      EXPECT_GT(stats_.mode_counters[schedule::StepsCounter(mode)], 0) << layout;
    }
  }
}

TEST_P(StateLayoutTest, WhatIsNotThereIsRefused) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto status = [&](const std::string& devices, const std::string& layout) {
    options_.machine.devices = *layout::ParseDevices(devices);
    options_.layout.reset();
    if (!layout.empty()) options_.layout = *layout::ParseLayout(layout);
    return choose::CreateEngine(*runtime, options_, files_, nullptr).status();
  };
  // 4 attention heads over 2 KV heads can be cut in two, 6 value heads over 3 key heads cannot.
  model::DeltaNetConfig& net = *files_.config.delta_net;
  net.value_heads = 6;
  net.key_heads = 3;
  files_.config.intermediate_size = 256;
  EXPECT_EQ(status("2xcpu", "tp=2").code(), model::kShardHeads);
  EXPECT_THAT(
      status("2xcpu", "tp=2").message(),
      testing::HasSubstr("tp=2 cannot cut 6 value heads over 3 key heads: rank 0 would have "
                         "value heads 0 to 2, which do not share key heads 0 to 1 evenly"));
  net.value_heads = net.key_heads = 2;
  EXPECT_EQ(status("4xcpu", "tp=4").code(), model::kShardLeaves);
  net.value_heads = 4;
  options_.limits.state_every = 48;
  EXPECT_EQ(status("2xcpu", "").code(), base::kInvalidArgument);
  options_.limits.state_every = 1024;
  options_.tier.host_bytes = 1 << 20;
  EXPECT_EQ(status("2xcpu", "").code(), layout::kStateLayout);
}

// Each rank keeps its part of a state, and all find the same.
TEST_P(StateLayoutTest, KeptStatesAreSharedInEveryCut) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    std::vector<int32_t>& prompt = requests_[i].prompts[0];
    std::vector<int32_t> begin(66);
    for (size_t t = 0; t < begin.size(); ++t) begin[t] = static_cast<int32_t>(i % 4 * 50 + t) % 250;
    prompt.resize(std::min<size_t>(prompt.size(), 20));
    prompt.insert(prompt.begin(), begin.begin(), begin.end());
    requests_[i].sampling.max_tokens = 6 + static_cast<int32_t>(i % 9);
  }
  options_.prefix_caching = false;
  const Answers expected = Run("cpu", "");
  options_.prefix_caching = true;
  options_.limits.state_every = 32;
  options_.limits.kv_blocks = 12;
  for (const auto& [devices, layout, steps] : {std::tuple{"2xcpu", "tp=2", 1},
                                               {"2xcpu", "pp=2", 2},
                                               {"2xcpu", "sp=2", 1},
                                               {"4xcpu", "dp=2,tp=2,weights=by_layer", 1}}) {
    const bool pools = layout::ParseLayout(layout)->pools();
    if (pools && HasExperts()) continue;  // It has no dense layers.
    options_.limits.steps_in_flight = steps;
    options_.shift.mode.reset();
    if (layout == std::string_view("sp=2")) options_.shift.mode = {2, 1};
    EXPECT_EQ(Run(devices, layout), expected) << layout;
    EXPECT_GT(stats_.cached_prompt_tokens, 0) << layout;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StateLayoutTest, testing::Values("qwen3.5", "qwen3-next"));

}  // namespace
}  // namespace forebay
