// Models whose layers keep states, cut and shared in every way: the answers of one rank, digests
// included.
#include <gmock/gmock.h>

#include <unistd.h>

#include <fstream>

#include "base/read_file.h"
#include "choose/create_engine.h"
#include "choose/decide.h"
#include "kv/tier/file_store.h"
#include "layout/plan_checks.h"
#include "runtime/real/real_runtime.h"
#include "testing/layout_fixture.h"

namespace forebay {
namespace {

class StateLayoutTest : public LayoutTest {
 protected:
  bool HasExperts() const { return files_.config.moe.has_value(); }
  bool Fits(const std::string& layout) const {
    const layout::Layout parsed = *layout::ParseLayout(layout);
    return layout::ValidateLayout(parsed, files_.config, parsed.num_devices()).ok();
  }
  // Whether ranks can compute parts of each other's feed-forward blocks.
  bool Ships() const { return files_.config.gated && files_.config.AddsPlainly(); }
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
    if (!Fits(layout)) continue;
    const layout::Layout parsed = *layout::ParseLayout(layout);
    options_.shift.mode.reset();
    if (parsed.sp > 1) options_.shift.mode = parsed.degrees();
    EXPECT_EQ(Run(devices, layout), expected) << layout;
    EXPECT_EQ(stats_.mode_counters["bytes_all_to_all"] > 0, parsed.sp > 1) << layout;
    EXPECT_EQ(stats_.mode_counters["bytes_all_reduce"] > 0, parsed.tp > 1) << layout;
  }
  // Modes of one layout, in turn.
  options_.shift.mode.reset();
  if (Fits("sp=2")) {
    options_.trial.shift_every = 2;
    EXPECT_EQ(Run("2xcpu", "sp=2"), expected);
    options_.trial.shift_every = 0;
  }
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
    if (!Ships()) return;
    options_.ship.mode = kShip;
    for (const char* layout : {"dp=2,weights=striped", "dp=2,weights=by_layer"}) {
      EXPECT_EQ(Run("2xcpu", layout), expected) << layout;
      EXPECT_GT(stats_.mode_counters["rows_shipped"], 0) << layout;
    }
    return;
  }
  for (const StepMode& mode : {kPull, kShip, kRouted}) {
    if (mode == kShip && !Ships()) continue;
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
  // 4 attention heads over 2 KV heads can be cut in two, 6 heads over 3 that serve them cannot.
  model::StateConfig& net = *files_.config.states;
  const bool mamba = net.kind == model::StateKind::kMamba2;
  const int64_t value_heads = net.value_heads, key_heads = net.key_heads;
  files_.config.intermediate_size = 256;
  if (mamba) {
    EXPECT_EQ(status("3xcpu", "tp=3").code(), model::kShardHeads);
    EXPECT_THAT(status("3xcpu", "tp=3").message(), testing::HasSubstr("of which"));
  }
  if (net.key_dim > 0) {
    net.value_heads = 6;
    net.key_heads = 3;
    EXPECT_EQ(status("2xcpu", "tp=2").code(), model::kShardHeads);
    EXPECT_THAT(status("2xcpu", "tp=2").message(),
                testing::HasSubstr(
                    mamba ? "tp=2 cannot cut 6 Mamba heads over 3 groups of B and C: rank 0 would "
                            "have Mamba heads 0 to 2, which do not share groups of B and C 0 to 1 "
                            "evenly"
                          : "tp=2 cannot cut 6 value heads over 3 key heads: rank 0 would have "
                            "value heads 0 to 2, which do not share key heads 0 to 1 evenly"));
  }
  net.value_heads = net.key_heads = 2;
  EXPECT_EQ(status("4xcpu", "tp=4").code(), model::kShardLeaves);
  net.value_heads = value_heads;
  net.key_heads = key_heads;
  options_.limits.state_every = 48;
  EXPECT_EQ(status("2xcpu", "").code(), base::kInvalidArgument);
  options_.limits.state_every = 1024;
  // Running choices stay above, and prefixes without their states are of no use to the next job.
  options_.tier = {.host_bytes = 8 << 20, .offload = layout::Offloading::kUniform};
  EXPECT_THAT(status("cpu", "").message(),
              testing::HasSubstr("the model has layers that keep a state; expected off"));
  options_.tier = {.file = "unused.kv", .file_bytes = 8 << 20, .keep_file = true};
  EXPECT_EQ(status("cpu", "").code(), kv::kKvFileInvalid);
}

// A preempted choice's states go below with its KV, in parts as large as its blocks, and come back.
TEST_P(StateLayoutTest, ParkedBelowChangesNothing) {
  for (Request& request : requests_) request.sampling.max_tokens += 40;
  const Answers expected = Run("cpu", "");
  options_.limits.kv_blocks = 9;
  const std::string file = fmt::format("state_layout_{}.kv", getpid());
  for (const auto& [devices, layout, steps, below] : {std::tuple{"cpu", "", 1, "memory"},
                                                      {"cpu", "", 1, "file"},
                                                      {"2xcpu", "tp=2", 1, "both"},
                                                      {"2xcpu", "pp=2", 1, "memory"},
                                                      {"2xcpu", "pp=2", 3, "file"},
                                                      {"4xcpu", "dp=2,tp=2", 1, "memory"}}) {
    if (!Fits(layout)) continue;
    options_.tier = {.preempt = layout::Preempting::kPark};
    const std::string_view where = below;
    // Of both the memory holds one choice, and its states go on to the file.
    if (where != "file") options_.tier.host_bytes = where == "both" ? 1 << 20 : 64 << 20;
    if (where != "memory") {
      options_.tier.file = file;
      options_.tier.file_bytes = 64 << 20;
    }
    options_.limits.steps_in_flight = steps;
    SCOPED_TRACE(fmt::format("{} {} in {}", devices, layout, below));
    EXPECT_EQ(Run(devices, layout), expected);
    EXPECT_EQ(stats_.recomputed_tokens, 0);
    EXPECT_EQ(stats_.mode_counters["kv_parks"], stats_.preemptions);
    const int64_t came =
        stats_.mode_counters["kv_returns"] + stats_.mode_counters["kv_parked_gifts"];
    EXPECT_TRUE(steps > 1 || came > 0);
    // Each state goes down and comes up whole.
    const auto plan = choose::Decide(options_, files_.config);
    ASSERT_TRUE(plan.ok());
    int64_t place = 0;
    for (const layout::RankPlan& rank : plan->ranks)
      place += static_cast<int64_t>(kv::PlaceBytes(rank.memory.states));
    EXPECT_GE(stats_.mode_counters["kv_bytes_down"], stats_.preemptions * place);
    EXPECT_GE(stats_.mode_counters["kv_bytes_up"], came * place);
  }
  // Where a state has room and KV beside it has none, the choice is computed again.
  options_.limits.steps_in_flight = 1;
  options_.tier = {.host_bytes = 64 << 20, .preempt = layout::Preempting::kPark};
  options_.machine.devices = *layout::ParseDevices("cpu");
  options_.layout = *layout::ParseLayout("");
  const layout::MemoryPlan memory = choose::Decide(options_, files_.config)->ranks[0].memory;
  options_.tier.host_bytes =
      static_cast<uint64_t>(memory.state_blocks) * memory.block_bytes_below(true);
  EXPECT_EQ(Run("cpu", ""), expected);
  EXPECT_GT(stats_.mode_counters["kv_parks_refused"], 0);
  EXPECT_GT(stats_.recomputed_tokens, 0);
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
    if (!Fits(layout)) continue;
    options_.limits.steps_in_flight = steps;
    options_.shift.mode.reset();
    if (layout == std::string_view("sp=2")) options_.shift.mode = {2, 1};
    EXPECT_EQ(Run(devices, layout), expected) << layout;
    EXPECT_GT(stats_.cached_prompt_tokens, 0) << layout;
  }
}

// A block without a gate of which ranks take 32 columns in one mode, and all in the other.
class NarrowBlock : public LayoutTest {};

TEST_P(NarrowBlock, ModesGiveTheSameDigests) {
  std::string text = *base::ReadFile(golden::Path("models/" + GetParam() + "/config.json"));
  constexpr std::string_view kWidth = "\"intermediate_size\": ";
  text.replace(text.find(kWidth) + kWidth.size(), 3, "64 ");
  const std::string path = testing::TempDir() + "/narrow_block.json";
  std::ofstream(path) << text;
  files_ = std::move(*engine::OpenModel(path, true, 5));
  ASSERT_EQ(files_.config.intermediate_size, 64);
  const Answers expected = Run("cpu", "");
  options_.trial.shift_every = 2;
  EXPECT_EQ(Run("2xcpu", "sp=2"), expected);
  EXPECT_GT(stats_.mode_counters["shift_switches"], 0);
}

INSTANTIATE_TEST_SUITE_P(Models, NarrowBlock, testing::Values("nemotron-h"));

INSTANTIATE_TEST_SUITE_P(Models, StateLayoutTest,
                         testing::Values("qwen3.5", "qwen3-next", "lfm2", "nemotron-h",
                                         "granite4-hybrid"));

}  // namespace
}  // namespace forebay
