#include "choose/stream_choice.h"
#include "choose/decide.h"

#include <gtest/gtest.h>

#include "model/builtin_configs.h"
#include "price/stream_price.h"

namespace forebay::choose {
namespace {

TEST(StreamChoice, Table) {
  struct Case {
    const char* what;
    std::vector<StreamTrial> trials;
    int32_t fastest, hidden;
  };
  const Case cases[] = {
      {"more is faster until copies show", {{0, 100, 0}, {10, 120, 0}, {20, 130, .2}}, 20, 10},
      {"a batch that no longer pays", {{0, 100, 0}, {10, 101, 0}, {20, 101.5, 0}}, 0, 20},
      {"the link is too slow", {{0, 100, 0}, {10, 60, .5}, {20, 40, .7}}, 0, 0},
      {"in between", {{0, 100, 0}, {10, 110, .01}, {20, 105, .1}}, 10, 10},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(ChooseFastest(each.trials).blocks, each.fastest) << each.what;
    EXPECT_EQ(ChooseHidden(each.trials).blocks, each.hidden) << each.what;
  }
}

// A translation job on a card whose default chunk fills the room that KV wants.
class StreamChoiceOfAPlan : public testing::Test {
 protected:
  StreamChoiceOfAPlan() {
    options_.machine.devices = *layout::ParseDevices("sim:a10");
    options_.limits.max_model_len = 4096;
    options_.tier.host_bytes = uint64_t{8} << 30;
    options_.job = std::make_shared<std::vector<layout::ChoiceShape>>(
        100, layout::ChoiceShape{.prompt = 1067, .output = 612});
  }
  Decision Plan() const { return *Decide(options_, config_); }

  const model::ModelConfig config_ = *model::LoadBuiltinConfig("Llama-3-8B");
  layout::EngineOptions options_{.model = "builtin:Llama-3-8B"};
};

TEST_F(StreamChoiceOfAPlan, AutoAlsoChoosesTheLimitsOfAStep) {
  const Decision chosen = Plan();
  EXPECT_LT(chosen.machine.max_num_batched_tokens, 8192);
  EXPECT_EQ(chosen.streaming.rfind("kv-offload=auto: ", 0), 0u) << chosen.streaming;
  EXPECT_NE(chosen.streaming.find("link to the host has no measured curve"), std::string::npos);
  EXPECT_EQ(chosen.ranks[0].memory.max_model_len, 4096);
  EXPECT_EQ(chosen.ranks[0].request.max_num_batched_tokens, chosen.machine.max_num_batched_tokens);
  options_.tier.offload = layout::Offloading::kOff;
  const Decision off = Plan();
  EXPECT_EQ(off.machine.max_num_batched_tokens, 8192);
  EXPECT_LT(chosen.forecast->seconds, 0.98 * off.forecast->seconds);
  // What is given holds.
  options_.tier.offload = layout::Offloading::kAuto;
  options_.limits.max_num_batched_tokens = 8192;
  options_.limits.max_num_seqs = 200;
  const Decision given = Plan();
  EXPECT_EQ(given.machine.max_num_batched_tokens, 8192);
  EXPECT_EQ(given.machine.max_num_seqs, 200);
  EXPECT_LE(chosen.forecast->seconds, given.forecast->seconds);
}

TEST_F(StreamChoiceOfAPlan, WhyNothingIsStreamedIsSaid) {
  options_.machine.devices = *layout::ParseDevices("sim:2xa10");
  options_.layout = *layout::ParseLayout("pp=2");
  EXPECT_EQ(Plan().streaming,
            "kv-offload=auto: nothing is streamed: stages have steps of several choices in flight; "
            "expected pp=1, not 2");
  options_.tier.offload = layout::Offloading::kOff;
  EXPECT_EQ(Plan().streaming, "") << "was not asked";
  options_.tier = {};
  EXPECT_EQ(Plan().streaming, "") << "nothing is below";
}

TEST_F(StreamChoiceOfAPlan, BesidePoolsTheLinkThatTheyLeaveCounts) {
  options_.limits.max_num_batched_tokens = 512;
  options_.limits.max_num_seqs = 256;
  options_.machine.devices = *layout::ParseDevices("sim:2xa10");
  options_.tier.host_bytes *= 2;
  options_.layout = *layout::ParseLayout("dp=2,weights=striped,pool=0");
  const Decision alone = Plan();
  EXPECT_GT(alone.streamed_blocks, 0);
  options_.layout->pool_layers = 32;
  const Decision pooled = Plan();
  EXPECT_FALSE(pooled.streaming.empty());
  // Pulls fill the step as weights do: more choices beside them pay, though the link is shared.
  EXPECT_GT(pooled.streamed_blocks, 0);
  // An A10 reaches its peers through its host: a layer's copies wait for a layer's pulls there.
  const price::StepPricer pricer(config_, alone.dtype, {}, {.rows = 512, .logit_rows = 256},
                                 alone.machine.profile, options_.pricing());
  const cost::Work step = pricer.Decode(16, 1000).all();
  const price::StepPulls pulls{.bytes = 32 << 20,
                               .bytes_per_s = 25e9,
                               .contention = cost::ContentionOf(alone.machine.profile, 1)};
  const auto costs = [&](const price::StepPulls& beside) {
    return price::StreamingCosts(pricer, alone.machine, alone.ranks[0].memory, 500, 100, step,
                                 beside);
  };
  EXPECT_NEAR(costs(pulls).up(1e6) - costs({}).up(1e6), pulls.seconds() / 32, 1e-9);
  EXPECT_GT(costs(pulls).layer_seconds, costs({}).layer_seconds);
  EXPECT_EQ(costs(pulls).up(0), 0);
}

TEST_F(StreamChoiceOfAPlan, WhatComesFromAFileTakesTheDiskToo) {
  const Decision plan = Plan();
  const cost::DeviceProfile& profile = plan.machine.profile;
  const price::StepPricer pricer(config_, plan.dtype, {}, {.rows = 512, .logit_rows = 256}, profile,
                                 options_.pricing());
  const auto up = [&](const kv::TierBlocks& below) {
    layout::MemoryPlan memory = plan.ranks[0].memory;
    memory.tier_blocks = below;
    return price::StreamingCosts(pricer, plan.machine, memory, 500, 100,
                                 pricer.Decode(16, 1000).all())
        .up(1e8);
  };
  const double from_memory = up({.in_memory = 500});
  EXPECT_NEAR(up({.in_file = 500}), from_memory + 1e8 / cost::DiskReadRate(profile), 1e-9);
  EXPECT_EQ(up({.in_memory = 500, .in_file = 500}), from_memory);
}

}  // namespace
}  // namespace forebay::choose
