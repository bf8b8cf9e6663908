#include "choose/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layout/layout_plan.h"
#include "model/builtin_configs.h"
#include "price/mode_price.h"
#include "price/park_price.h"
#include "price/step_price.h"
#include "weights/book/placement.h"

namespace forebay::choose {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A choice's states take as many blocks below as they have bytes of KV blocks, on each rank.
TEST(Decide, StatesBelowArePlanned) {
  const model::ModelConfig config = *model::LoadBuiltinConfig("Qwen3.6-35B-A3B");
  layout::EngineOptions options{.model = "builtin:Qwen3.6-35B-A3B"};
  options.machine.devices = *layout::ParseDevices("sim:2xh200");
  options.tier.host_bytes = uint64_t{8} << 30;
  for (const char* text : {"dp=2", "tp=2", "pp=2"}) {
    options.layout = *layout::ParseLayout(text);
    const auto plan = Decide(options, config);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const int32_t blocks = plan->ranks[0].memory.state_blocks;
    // 62.8 MiB a choice; 10 layers of 2 KV heads of 256 have 640 KiB a block.
    EXPECT_EQ(blocks, 101) << text;
    for (const layout::RankPlan& rank : plan->ranks) {
      const layout::MemoryPlan& memory = rank.memory;
      EXPECT_EQ(memory.state_blocks, blocks);
      EXPECT_GE(static_cast<uint64_t>(blocks) * memory.block_bytes_below(false),
                kv::PlaceBytes(memory.states));
      EXPECT_LE(memory.tier_bytes, uint64_t{4} << 30);
      EXPECT_EQ(memory.tier_blocks.all(), plan->ranks[0].memory.tier_blocks.all());
      EXPECT_EQ(memory.streamed_blocks, 0);
    }
    if (plan->layout.pp == 1) {
      EXPECT_THAT(plan->streaming, HasSubstr("layers that keep a state"));
    }
  }
}

TEST(Decide, TheTierBelowIsPlanned) {
  const model::ModelConfig config = *model::LoadBuiltinConfig("Llama-3-8B");
  layout::EngineOptions options{.model = "builtin:Llama-3-8B"};
  options.machine.devices = *layout::ParseDevices("sim:2xh100");
  const Decision none = *Decide(options, config);
  EXPECT_EQ(none.ranks[0].memory.tier_blocks.all(), 0);
  options.tier.host_bytes = uint64_t{8} << 30;
  const Decision plan = *Decide(options, config);
  // 32 positions of 32 layers with 8 KV heads of 128: 4 MiB.
  EXPECT_EQ(plan.ranks[0].memory.tier_blocks.in_memory, 1024);
  EXPECT_EQ(plan.ranks[0].memory.tier_bytes, uint64_t{4} << 30);
  EXPECT_EQ(plan.ranks[0].memory.num_blocks, none.ranks[0].memory.num_blocks);
  options.layout = *layout::ParseLayout("tp=2");
  EXPECT_EQ(Decide(options, config)->ranks[1].memory.tier_blocks.in_memory, 2048);

  // A file beside it: its staging is memory, too.
  options.tier.file = "kv";
  options.tier.file_bytes = uint64_t{20} << 30;
  const layout::MemoryPlan both = Decide(options, config)->ranks[0].memory;
  EXPECT_EQ(both.tier_blocks.in_memory, 2048);
  EXPECT_EQ(both.tier_blocks.in_file, 5120);
  EXPECT_EQ(both.tier_bytes, (uint64_t{4} << 30) + (uint64_t{256} << 20));
  EXPECT_EQ(both.file_bytes, uint64_t{10} << 30);
  options.tier.file_bytes = 1 << 20;
  EXPECT_EQ(Decide(options, config).status().code(), layout::kKvFileSize);
  options.tier.file.clear();
  options.tier.file_bytes = 0;

  options.layout.reset();
  options.tier.host_bytes = 7 << 20;
  const base::Status small = Decide(options, config).status();
  EXPECT_EQ(small.code(), layout::kOffloadingSize);
  EXPECT_EQ(small.message(),
            "--kv-offloading-size 7.0 MiB leaves 3.5 MiB to each of 2 ranks; expected at least a "
            "block of KV cache, 4.0 MiB");
  options.machine.devices = *layout::ParseDevices("cpu");
  options.tier.host_bytes = uint64_t{1} << 50;
  const base::Status large = Decide(options, config).status();
  EXPECT_EQ(large.code(), layout::kOffloadingSize);
  EXPECT_EQ(
      large.message().rfind("--kv-offloading-size take 1048576.00 GiB of the host's memory", 0), 0u)
      << large.message();
  EXPECT_NE(large.message().find(" that the machine has free"), std::string::npos);
  // Staging of a file is what is left of it.
  options.tier = {.file = "kv", .file_bytes = uint64_t{20} << 30};
  options.machine.memory_bytes = uint64_t{1} << 50;
  const base::Status file = Decide(options, config).status();
  EXPECT_EQ(file.code(), layout::kKvFileSize);
  EXPECT_EQ(file.message().rfind("--kv-file-size take 256.0 MiB of the host's memory", 0), 0u)
      << file.message();
}

TEST(Decide, BaselinesHaveTheirPublishedLimitsOfAStep) {
  const model::ModelConfig config = *model::LoadBuiltinConfig("Llama-3-8B");
  layout::EngineOptions options{.model = "builtin:Llama-3-8B"};
  options.machine.devices = *layout::ParseDevices("sim:a10");
  const auto limits = [&](const char* policy) {
    options.policy = *schedule::FindPolicy(policy);
    const Decision plan = *Decide(options, config);
    return std::pair(plan.machine.max_num_seqs, plan.machine.max_num_batched_tokens);
  };
  EXPECT_EQ(limits("continuous"), std::pair(256, 8192));
  EXPECT_EQ(limits("sarathi"), std::pair(128, 512));
  EXPECT_EQ(limits("vasuki-printed"), std::pair(128, 512));
  EXPECT_EQ(limits("vllm"), std::pair(128, 8192));
  options.limits.max_num_seqs = 7;
  EXPECT_EQ(limits("sarathi"), std::pair(7, 512)) << "what is given holds";
}

// Copies of a choice's KV take some percent of what its rows would, on a card over PCIe.
TEST(Decide, ParkingIsPricedByTheDevice) {
  const model::ModelConfig config = *model::LoadBuiltinConfig("Llama-3-8B");
  layout::EngineOptions options{.model = "builtin:Llama-3-8B"};
  options.machine.devices = *layout::ParseDevices("sim:a10");
  EXPECT_EQ(price::PriceParking(options, *Decide(options, config)).row_seconds, 0);
  options.tier.host_bytes = uint64_t{8} << 30;
  const Decision plan = *Decide(options, config);
  const schedule::ParkPrices prices = price::PriceParking(options, plan);
  // 4 MiB over PCIe 4 x16, and 16 GFLOP at 100 TFLOP/s.
  EXPECT_NEAR(prices.block_seconds, 4.2e6 / 25.6e9, 30e-6);
  EXPECT_NEAR(prices.row_seconds, 160e-6, 80e-6);
  EXPECT_GT(prices.context_token_seconds, 0);
  EXPECT_TRUE(schedule::ParkPays({1000, 32, 32}, prices));
  options.tier.preempt = layout::Preempting::kRecompute;
  const schedule::ParkPrices again = price::PriceParking(options, plan);
  EXPECT_FALSE(again.preempted);
  EXPECT_EQ(again.row_seconds, prices.row_seconds) << "prefixes are found below all the same";
  options.tier.preempt = layout::Preempting::kPark;
  EXPECT_TRUE(schedule::ParkPays({1, 50, 50}, price::PriceParking(options, plan)));
}

// Whole layers lie with owners: a step lasts as long as the pulls from the one that holds most. So
// layers that leave it as it is cost no more pulls.
TEST(PullBytes, WholeLayersCostWhatTheBusiestOwnerGives) {
  const model::ModelConfig config = *model::LoadBuiltinConfig("Llama-3.1-70B");
  layout::EngineOptions options{.model = "builtin:Llama-3.1-70B"};
  options.machine.devices = *layout::ParseDevices("sim:8xb200");
  const auto bytes = [&](const char* placement, int layers) {
    options.layout =
        *layout::ParseLayout(fmt::format("dp=8,weights={},pool={}", placement, layers));
    const Decision plan = Decide(options, config).value();
    uint64_t most = 0;
    for (const share::PoolPlan& pool : plan.ranks.front().request.pool)
      most = std::max(most, price::PullBytes(pool));
    return most;
  };
  const uint64_t layer = bytes("by_layer", 8) / 7;  // one an owner, which seven others pull
  EXPECT_NEAR(static_cast<double>(layer), 3.0 * 8192 * 28672 * 2, 0.01 * 3 * 8192 * 28672 * 2);
  for (const int layers : {17, 20, 21, 24}) EXPECT_EQ(bytes("by_layer", layers), 3 * 7 * layer);
  for (const int layers : {25, 32}) EXPECT_EQ(bytes("by_layer", layers), 4 * 7 * layer);
  // Stripes are dealt evenly: a rank gives what it pulls, and each layer counts.
  EXPECT_LT(bytes("striped", 20), bytes("striped", 21));
  EXPECT_LT(bytes("striped", 20), bytes("by_layer", 20));
}

// A group that meets by its load begins free, and pulls until its first prompts are computed.
TEST(Decide, AShortJobShipsFromItsFirstStep) {
  const model::ModelConfig config = *model::LoadBuiltinConfig("Qwen3-32B");
  layout::EngineOptions options{.model = "builtin:Qwen3-32B"};
  options.machine.devices = *layout::ParseDevices("sim:8xh200");
  options.layout = *layout::ParseLayout("dp=8,weights=striped,pool=64");
  const auto decide = [&](const layout::ChoiceShape& choice, int choices) {
    options.job = std::make_shared<std::vector<layout::ChoiceShape>>(choices, choice);
    return *Decide(options, config);
  };
  const layout::ChoiceShape few{.prompt = 512, .output = 50, .bound = 50};
  const Decision by_job = decide(few, 200);
  EXPECT_FALSE(by_job.group->by_load);
  options.ship.mode = StepMode{.ffn = FfnMode::kShip};
  EXPECT_EQ(by_job.forecast->seconds, decide(few, 200).forecast->seconds);
  // A border of the user's is kept.
  options.ship = {.threshold = 20};
  EXPECT_TRUE(decide(few, 200).group->by_load);
  // Batches that pull: the load decides.
  options.ship = {};
  EXPECT_TRUE(decide({.prompt = 2048, .output = 4, .bound = 4}, 400).group->by_load);
}

// A real machine and its simulated twin, by one profile: what is pooled, when ranks ship and what
// the job should take are the same.
TEST(Decide, OneProfileDecidesForRealAndSimulatedDevicesAlike) {
  model::ModelConfig config = *model::LoadBuiltinConfig("Llama-3-8B");
  config.num_layers = 4;
  layout::EngineOptions options{.model = "builtin:Llama-3-8B"};
  options.layout = *layout::ParseLayout("dp=2,weights=striped");
  options.machine.threads = 2;
  options.machine.memory_bytes = uint64_t{12} << 30;
  options.pool.slice_bytes = 1 << 20;
  options.job =
      std::make_shared<std::vector<layout::ChoiceShape>>(40, layout::ChoiceShape{300, 60, 60});
  const auto plan = [&](const char* devices, const char* profile) {
    layout::EngineOptions asked = options;
    asked.machine.devices = *layout::ParseDevices(devices);
    asked.machine.device_profile = profile;
    return Decide(asked, config).value();
  };
  const Decision simulated = plan("sim:2xzen5", ""), real = plan("2xcpu", "zen5");
  EXPECT_EQ(real.machine.profile.name, "zen5");
  EXPECT_EQ(real.layout.pool_layers, simulated.layout.pool_layers);
  ASSERT_TRUE(real.forecast && simulated.forecast);
  EXPECT_EQ(real.forecast->seconds, simulated.forecast->seconds);
  ASSERT_EQ(real.group.has_value(), simulated.group.has_value());
  if (real.group) {
    EXPECT_EQ(real.group->load.threshold, simulated.group->load.threshold);
  }
  EXPECT_FALSE(plan("2xcpu", "").forecast);

  options.machine.devices = *layout::ParseDevices("cpu");
  options.machine.device_profile = "h100";
  EXPECT_THAT(Decide(options, config).status().message(), HasSubstr("h100 is a GPU"));
  options.machine.devices = *layout::ParseDevices("sim:h100");
  EXPECT_THAT(Decide(options, config).status().message(), HasSubstr("--devices sim:1xh100"));
}

// 72 replicas cannot meet in a step: who asked for such steps hears which flag it was.
TEST(Decide, AModeThatTheLayoutCannotTakeIsNamed) {
  layout::EngineOptions options{.model = "builtin:Qwen3-32B"};
  options.machine.devices = *layout::ParseDevices("sim:72xh20");
  options.layout = *layout::ParseLayout("dp=72,weights=by_layer,pool=64");
  options.ship.mode = StepMode{.ffn = FfnMode::kGather};
  const auto plan = Decide(options, *model::LoadBuiltinConfig("Qwen3-32B"));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().message().rfind("--mode gather: ", 0), 0u) << plan.status().message();
  // Ranks that cut rows pull what they share.
  options.machine.devices = *layout::ParseDevices("sim:8xh20");
  for (const char* layout : {"sp=8", "sp=4,tp=2,weights=striped,pool=64", "dp=2,sp=4"}) {
    options.layout = *layout::ParseLayout(layout);
    for (const auto& [mode, name] :
         {std::pair{FfnMode::kShip, "ship"}, {FfnMode::kGather, "gather"}}) {
      options.ship.mode = StepMode{.ffn = mode};
      const base::Status refused = Decide(options, *model::LoadBuiltinConfig("Qwen3-32B")).status();
      EXPECT_THAT(
          refused.message(),
          testing::AllOf(HasSubstr(fmt::format("--mode {} with sp={}", name, options.layout->sp)),
                         HasSubstr("expected pull, or sp=1")))
          << layout;
    }
  }
}

// What part of 128 experts has rows, of which each row takes 8.
TEST(Decide, ExpertsThatHaveRows) {
  const model::ModelConfig config = *model::LoadBuiltinConfig("Qwen3-30B-A3B"),
                           dense = *model::LoadBuiltinConfig("Qwen3-32B");
  const auto balanced = *model::ParseRouting("balanced", 0),
             skewed = *model::ParseRouting("power:1.2", 0);
  const price::RoutedExperts by_chance(config, nullptr), evenly(config, balanced.get()),
      unevenly(config, skewed.get());
  EXPECT_EQ(price::RoutedExperts(dense, nullptr).Share(7), 0);
  EXPECT_NEAR(by_chance.Share(1), 1.0 / 16, 1e-12);
  EXPECT_NEAR(by_chance.Share(8), 1 - std::pow(15.0 / 16, 8), 1e-12);
  EXPECT_EQ(evenly.Share(1), 1.0 / 16);
  EXPECT_EQ(evenly.Share(16), 1);
  for (const int64_t rows : {8, 16, 64}) {
    EXPECT_LT(unevenly.Share(rows), evenly.Share(rows)) << rows;
    EXPECT_GE(unevenly.Share(2 * rows), unevenly.Share(rows)) << rows;
  }
}

// Small steps pull the experts that have rows, where that takes less time: the fewer have rows and
// the slower links are, the longer. More than 8 ranks cannot meet to ship.
TEST(Decide, FewRowsPullExpertsThatHaveRows) {
  const model::ModelConfig config = *model::LoadBuiltinConfig("Qwen3-30B-A3B");
  const auto rows = [&](const char* devices, const char* layout, const char* mode,
                        const char* routing, int64_t threshold = 0) {
    layout::EngineOptions options{.model = "builtin:Qwen3-30B-A3B"};
    options.machine.devices = *layout::ParseDevices(devices);
    options.machine.memory_bytes = uint64_t{1} << 42;
    options.layout = *layout::ParseLayout(layout);
    options.ship.mode = *schedule::ParseWantedMode(mode);
    options.ship.routed_threshold = threshold;
    if (*routing != 0) options.machine.routing = *model::ParseRouting(routing, 0);
    const auto plan = Decide(options, config);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return plan.ok() ? plan->routed_rows : -1;
  };
  constexpr const char *kDevices = "sim:12xh200", *kLayout = "dp=12,experts=by_expert";
  const int64_t evenly = rows(kDevices, kLayout, "auto", "");
  EXPECT_GT(evenly, 0);
  EXPECT_LT(evenly, 17);  // rows that are dealt out to all experts
  EXPECT_GT(rows(kDevices, kLayout, "auto", "power:1.2"), evenly);
  EXPECT_EQ(rows(kDevices, kLayout, "pull", ""), 0);
  EXPECT_GT(rows(kDevices, kLayout, "routed", ""), 1 << 30);
  EXPECT_EQ(rows(kDevices, kLayout, "auto", "", 5), 5);
  EXPECT_EQ(rows(kDevices, kLayout, "pull", "", 5), 5);
  EXPECT_EQ(rows("sim:12xh200", "dp=12", "auto", "", 5), 0);
  // Without prices, as long as less than half of the experts are expected to have rows.
  EXPECT_EQ(rows("2xcpu", "dp=2,experts=by_expert", "auto", ""), 10);
}

TEST(Decide, DevicesOfShapesStoreWhatTheFilesOrTheFlagSay) {
  const model::ModelConfig qwen = *model::LoadBuiltinConfig("Qwen3-32B"),
                           r1 = *model::LoadBuiltinConfig("DeepSeek-R1-FP8"),
                           nvfp4 = *model::LoadBuiltinConfig("DeepSeek-R1-NVFP4");
  const auto weights = [](const char* devices, const model::ModelConfig& config,
                          std::optional<cost::NumberFormat> format) -> base::Result<double> {
    layout::EngineOptions options;
    options.machine.devices = *layout::ParseDevices(devices);
    options.machine.quantization.format = format;
    options.machine.memory_bytes = uint64_t{1} << 50;
    options.limits.max_model_len = 64;
    FB_ASSIGN_OR_RETURN(const Decision plan, Decide(options, config));
    return static_cast<double>(plan.ranks[0].memory.bytes(layout::RegionUse::kWeights));
  };
  const double bf16 = *weights("sim:h200", qwen, {});
  EXPECT_NEAR(*weights("sim:h200", qwen, cost::NumberFormat::kFP8), bf16 / 2, 0.03 * bf16);
  EXPECT_EQ(*weights("cpu", qwen, {}), bf16);
  EXPECT_NEAR(*weights("sim:h200", r1, {}) * 1e-9, 674, 5);
  EXPECT_NEAR(*weights("cpu", r1, {}) * 1e-9, 1343, 5);  // expanded
  EXPECT_EQ(weights("cpu", qwen, cost::NumberFormat::kFP8).status().code(), layout::kQuantization);
  for (const char* const devices : {"cpu", "sim:h200"})  // the embedding and the head keep 2 bytes
    EXPECT_NEAR(*weights(devices, qwen, cost::NumberFormat::kInt4), 0.31 * bf16, 0.01 * bf16);
  EXPECT_NEAR(*weights("cpu", nvfp4, {}) * 1e-9, 1343, 5);  // expanded
}

// A rank of eight would begin at column 3,680 of the FFN's 29,568.
TEST(Decide, ScalesOfBlocksAreNotCut) {
  const auto plan = [](const char* name, const char* layout, cost::NumberFormat format) {
    layout::EngineOptions options;
    options.machine.devices = *layout::ParseDevices("sim:8xh200");
    options.machine.quantization.format = format;
    options.layout = *layout::ParseLayout(layout);
    return Decide(options, *model::LoadBuiltinConfig(name)).status();
  };
  for (const char* const layout : {"tp=8", "sp=8", "sp=4,tp=2"}) {
    const base::Status status = plan("Qwen2.5-72B", layout, cost::NumberFormat::kFP8Block);
    EXPECT_EQ(status.code(), layout::kQuantization) << layout;
    EXPECT_THAT(status.message(),
                testing::AllOf(HasSubstr("fp8_block"), HasSubstr("column of the FFN"),
                               HasSubstr("block of 128")));
    EXPECT_TRUE(plan("Qwen2.5-72B", layout, cost::NumberFormat::kFP8).ok()) << layout;
    EXPECT_TRUE(plan("Qwen3-32B", layout, cost::NumberFormat::kFP8Block).ok()) << layout;
  }
}

// A byte an element, in the plan and in the prices of attention; of latents too, whose attention
// arithmetic bounds.
TEST(Decide, DevicesOfShapesMayHaveAnFp8Cache) {
  for (const char* const name : {"Qwen3-32B", "DeepSeek-R1-NVFP4"}) {
    const model::ModelConfig config = *model::LoadBuiltinConfig(name);
    layout::EngineOptions options;
    options.machine.devices = *layout::ParseDevices("sim:h200");
    options.machine.memory_bytes = uint64_t{1} << 42;
    options.limits.max_model_len = 4096;
    options.limits.max_num_seqs = 64;
    const Decision plain = *Decide(options, config);
    options.machine.kv_cache_format = cost::NumberFormat::kFP8;
    const Decision fp8 = *Decide(options, config);
    EXPECT_EQ(fp8.KvBlockBytes(false) * 2, plain.KvBlockBytes(false)) << name;
    EXPECT_EQ(fp8.ranks[0].memory.num_blocks, plain.ranks[0].memory.num_blocks);
    EXPECT_EQ(fp8.ranks[0].memory.weight_bytes(), plain.ranks[0].memory.weight_bytes());
    if (config.mla) {
      options.machine.devices = *layout::ParseDevices("cpu");
      EXPECT_EQ(Decide(options, config).status().code(), layout::kKvCacheDtype);
      continue;
    }
    const auto step = [&](const layout::LayoutPlan& plan) {
      const price::StepPricer pricer(plan.config, plan.dtype, {}, plan.ranks[0].memory.capacity,
                                     plan.machine.profile,
                                     {.calibration = cost::Calibration::kUncalibrated});
      return pricer.Decode(64, 4000).rest.seconds;
    };
    const double saved = step(plain) - step(fp8);
    // 64 x 4,000 tokens of half the bytes at the rate of the profile: kernels reach a part of it.
    const double least = 64.0 * 4000 / kernels::kBlockTokens *
                         static_cast<double>(fp8.KvBlockBytes(false)) /
                         plain.machine.profile.memory_bytes_per_s;
    EXPECT_GT(saved, least) << name;
    EXPECT_LT(saved, 2 * least) << name;
  }
}

}  // namespace
}  // namespace forebay::choose
