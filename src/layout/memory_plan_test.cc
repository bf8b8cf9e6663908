#include "layout/memory_plan.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "layout/region_table.h"

namespace forebay::layout {
namespace {

model::ModelConfig SmallConfig() {
  model::ModelConfig config;
  config.family = "llama";
  config.vocab_size = 1000;
  config.hidden_size = 128;
  config.intermediate_size = 384;
  config.num_layers = 4;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.tie_word_embeddings = true;
  config.sliding_window.assign(4, 0);
  config.max_position_embeddings = 8192;
  config.rope.inv_freq.assign(16, 1.0f);
  return config;
}

MemoryRequest Request(uint64_t budget) {
  return {.budget_bytes = budget,
          .device_bytes = 1 << 20,
          .max_num_seqs = 64,
          .max_num_batched_tokens = 256};
}

TEST(MemoryPlan, PartsStayWithinTheBudget) {
  for (const uint64_t mib : {16, 40, 100, 333}) {
    const MemoryRequest request = Request(mib << 20);
    const auto plan = PlanMemory(SmallConfig(), tensor::DType::kBF16, request);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_LE(request.device_bytes + plan->fixed_bytes() + plan->bytes(RegionUse::kKv),
              request.budget_bytes);
    EXPECT_GE(plan->kv_tokens(), plan->max_model_len);
  }
}

TEST(MemoryPlan, BlockOfAllLayers) {
  const auto plan = PlanMemory(SmallConfig(), tensor::DType::kBF16, Request(64 << 20));
  ASSERT_TRUE(plan.ok());
  // layers, K and V, heads, head_dim, tokens, bytes
  EXPECT_EQ(plan->kv_groups[0].layout.block_stride, 4 * 2 * 2 * 32 * 32 * 2);
}

TEST(MemoryPlan, LengthFallsToAPowerOfTwoThatTheCacheHolds) {
  const auto plan = PlanMemory(SmallConfig(), tensor::DType::kBF16, Request(8 << 20));
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_LT(plan->max_model_len, 8192);
  EXPECT_EQ(plan->max_model_len & (plan->max_model_len - 1), 0);
}

TEST(MemoryPlan, AnAskedLengthThatDoesNotFitIsRefusedWithBothNumbers) {
  MemoryRequest request = Request(8 << 20);
  request.max_model_len = 8192;
  const auto plan = PlanMemory(SmallConfig(), tensor::DType::kBF16, request);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), kMemoryTooSmall);
  EXPECT_NE(plan.status().message().find("--max-model-len 8192"), std::string::npos);
}

// Where KV below the device would do it says so, with what a sequence of full length takes.
TEST(MemoryPlan, WhatLiesBelowWouldHelp) {
  for (const auto& [layers, mib] : {std::pair{2, 6}, {4, 8}}) {
    model::ModelConfig config = SmallConfig();
    config.num_layers = layers;
    config.sliding_window.assign(static_cast<size_t>(layers), 0);
    MemoryRequest request = Request(static_cast<uint64_t>(mib) << 20);
    request.max_model_len = 8192;
    const std::string message =
        PlanMemory(config, tensor::DType::kBF16, request).status().message();
    EXPECT_NE(message.find("--max-model-len 8192 needs"), std::string::npos) << message;
    EXPECT_EQ(message.find("--kv-offloading-size") != std::string::npos, layers > 2) << message;
  }
}

// What is streamed passes through memory of the budget: half of what weights and workspace leave at
// most, however much is asked for; a context that both do not hold is refused with the numbers.
TEST(MemoryPlan, TheWindowStaysWithinTheBudget) {
  for (const uint64_t mib : {8, 16, 40}) {
    MemoryRequest request = Request(mib << 20);
    request.host_bytes = uint64_t{1} << 30;
    request.streamed_blocks = INT32_MAX;
    const MemoryPlan plan = DivideMemory(SmallConfig(), tensor::DType::kBF16, request);
    const uint64_t left = request.budget_bytes - request.device_bytes - plan.fixed_bytes();
    EXPECT_GT(plan.streamed_blocks, 0) << mib;
    EXPECT_LE(plan.bytes(RegionUse::kKv), left) << mib;
    EXPECT_LE(static_cast<uint64_t>(plan.streamed_blocks) * WindowPlaceBytes(plan), left / 2)
        << mib;
    request.max_model_len = plan.kv_tokens() + kernels::kBlockTokens;
    const base::Status longer = PlanMemory(SmallConfig(), tensor::DType::kBF16, request).status();
    EXPECT_EQ(longer.code(), kMemoryTooSmall) << mib;
    EXPECT_NE(longer.message().find(fmt::format("--max-model-len {} needs", request.max_model_len)),
              std::string::npos)
        << longer.message();
  }
}

// The workspace of contexts that are expanded grows with memory, not with the context.
TEST(MemoryPlan, ExpandedContextsTakeASixteenthOfMemory) {
  model::ModelConfig config = SmallConfig();
  config.family = "deepseek_v3";
  config.num_heads = config.num_kv_heads = 64;
  config.mla = model::MlaConfig{
      .kv_lora_rank = 64, .qk_nope_head_dim = 32, .qk_rope_head_dim = 32, .v_head_dim = 32};
  const auto workspace = [&](uint64_t budget, int64_t length) {
    MemoryRequest request = Request(budget);
    request.max_model_len = length;
    return DivideMemory(config, tensor::DType::kBF16, request).bytes(RegionUse::kWorkspace);
  };
  constexpr uint64_t kGib = 1 << 30;
  // 64 heads x 192 bytes a position, and 128 more of each of 4,096, are 234.9 MB; of 512 positions
  // 10.5. Beside them grow the gathered latents and the block tables.
  EXPECT_NEAR(workspace(64 * kGib, 16384) - workspace(64 * kGib, 512), 226e6, 2e6);
  EXPECT_NEAR(workspace(kGib, 16384) - workspace(kGib, 512), 67.1e6 - 10.5e6 + 1.5e6, 2e6);
  EXPECT_NEAR(workspace(2 * kGib, 16384) - workspace(kGib, 16384), kGib / 16, 1e5);
}

TEST(MemoryPlan, WeightsThatDoNotFitAreNamed) {
  const auto plan = PlanMemory(SmallConfig(), tensor::DType::kF32, Request(3 << 20));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), kMemoryTooSmall);
  EXPECT_NE(plan.status().message().find("weights"), std::string::npos);
}

// Layers of which one in `full_every` sees all and the others `window` positions.
model::ModelConfig MixedConfig(int layers, int full_every, int window, int kv_heads, int head_dim) {
  model::ModelConfig config = SmallConfig();
  config.num_layers = layers;
  config.num_heads = config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.rope.inv_freq.assign(static_cast<size_t>(head_dim / 2), 1.0f);
  config.sliding_window.clear();
  for (int layer = 0; layer < layers; ++layer)
    config.sliding_window.push_back((layer + 1) % full_every == 0 ? 0 : window);
  return config;
}

// Gemma 3 4B and gpt-oss 20B at 8K: windows take what 64 choices see and a step's rows, and what is
// beside that in whole blocks costs the full layers less than a tenth.
TEST(MemoryPlan, WindowsTakeWhatChoicesSeeAndFullLayersTheRest) {
  struct Shape {
    const char* name;
    model::ModelConfig config;
    int64_t full_layers, window, token_bytes;  // of a layer
    double more;                               // than with equally many blocks
    uint64_t gib;
  };
  const Shape shapes[] = {
      {"Gemma 3 4B", MixedConfig(34, 6, 1024, 4, 256), 5, 1024, 2 * 4 * 256 * 2, 2.5, 14},
      {"gpt-oss 20B", MixedConfig(24, 2, 128, 8, 64), 12, 128, 2 * 8 * 64 * 2, 1.8, 10}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(shape.name);
    for (const bool digest : {false, true}) {
      MemoryRequest request = Request(shape.gib << 30);
      request.max_num_batched_tokens = 2048;
      request.max_model_len = 8192;
      request.digest = digest;
      const auto plan = PlanMemory(shape.config, tensor::DType::kBF16, request);
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      EXPECT_LT(plan->num_blocks, 64 * 256) << "memory is no bound";
      const uint64_t bytes = plan->bytes(RegionUse::kKv);
      EXPECT_LE(request.device_bytes + plan->fixed_bytes() + bytes, request.budget_bytes);
      // Not a block more would fit.
      const uint64_t left = request.budget_bytes - request.device_bytes - plan->fixed_bytes();
      EXPECT_GT(
          kv::KvCacheBytes(plan->kv_groups, static_cast<uint64_t>(plan->num_blocks) + 1, digest) +
              2 * kRegionRounding,
          left);
      if (digest) continue;
      const int64_t windowed_layers = shape.config.num_layers - shape.full_layers,
                    windows = (64 * shape.window + 2048) * windowed_layers * shape.token_bytes,
                    rest = static_cast<int64_t>(bytes) - windows,
                    alone = rest / (shape.full_layers * shape.token_bytes),
                    equal =
                        static_cast<int64_t>(bytes) / (shape.config.num_layers * shape.token_bytes);
      EXPECT_GE(plan->kv_tokens(), alone * 9 / 10);
      EXPECT_GE(static_cast<double>(plan->kv_tokens()), shape.more * static_cast<double>(equal));
    }
  }
}

// Where choices of a known length fill the full layers first, windows have places for these alone:
// the full layers hold nine tenths of what they could beside exact windows, and there are places
// for all of it.
TEST(MemoryPlan, PlacesFollowFromLengths) {
  struct Shape {
    const char* name;
    model::ModelConfig config;
    int64_t full_layers, window, token_bytes;  // of a layer
    uint64_t gib;
  };
  const Shape shapes[] = {
      {"Gemma 3 4B", MixedConfig(34, 6, 1024, 4, 256), 5, 1024, 2 * 4 * 256 * 2, 14},
      {"gpt-oss 20B", MixedConfig(24, 2, 128, 8, 64), 12, 128, 2 * 8 * 64 * 2, 10}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(shape.name);
    std::vector<MemoryRequest> requests(1, Request(shape.gib << 30));
    requests[0].max_num_seqs = 256;
    requests[0].max_model_len = 8192;
    const auto plan = [&] {
      return DivideReplicaMemory(shape.config, tensor::DType::kBF16, requests)[0];
    };
    const MemoryPlan before = plan();
    constexpr int64_t kHeld = 6144;
    for (const int64_t held : {int64_t{100}, kHeld}) {
      FitPlaces(shape.config, tensor::DType::kBF16, static_cast<double>(held), &requests);
      EXPECT_EQ(requests[0].max_num_seqs < 256, held == kHeld) << held;
    }
    const MemoryPlan after = plan();
    EXPECT_GT(after.kv_tokens(), before.kv_tokens());
    EXPECT_GE(requests[0].max_num_seqs * kHeld, after.kv_tokens());
    const int64_t windowed_layers = shape.config.num_layers - shape.full_layers,
                  of_choice = (windowed_layers * shape.window + shape.full_layers * kHeld) *
                              shape.token_bytes,
                  fitting = static_cast<int64_t>(after.bytes(RegionUse::kKv)) / of_choice;
    EXPECT_GE(after.kv_tokens(), fitting * kHeld * 9 / 10);
  }
}

// A chosen max_model_len is part of every answer, and lengths of a job are not.
TEST(MemoryPlan, LengthsOfAJobDoNotChooseTheContext) {
  model::ModelConfig config = MixedConfig(4, 2, 64, 2, 32);
  config.max_position_embeddings = 1 << 20;
  std::vector<MemoryRequest> requests(2, Request(uint64_t{48} << 20));
  requests[1].budget_bytes -= 1 << 20;
  for (MemoryRequest& request : requests) request.max_num_seqs = 1024;
  const auto plans = [&] { return DivideReplicaMemory(config, tensor::DType::kBF16, requests); };
  const std::vector<MemoryPlan> before = plans();
  FitPlaces(config, tensor::DType::kBF16, 10000, &requests);
  EXPECT_LT(requests[0].max_num_seqs, 1024);
  EXPECT_EQ(requests[0].max_num_seqs, requests[1].max_num_seqs);
  EXPECT_EQ(plans()[0].max_model_len, before[0].max_model_len);
  EXPECT_GT(plans()[0].kv_tokens(), 2 * before[0].max_model_len) << "a longer one would fit";
}

// Windows have no more blocks than the others, and as many where no layer sees all.
TEST(MemoryPlan, WindowsHaveAtMostTheBlocksOfTheOthers) {
  const auto blocks = [](const model::ModelConfig& config, int32_t limit) {
    MemoryRequest request = Request(uint64_t{1} << 30);
    request.max_kv_blocks = limit;
    const MemoryPlan plan = DivideMemory(config, tensor::DType::kBF16, request);
    std::vector<int64_t> found;
    for (const kv::KvGroup& group : plan.kv_groups)
      found.push_back(group.BlocksOf(plan.num_blocks));
    return found;
  };
  const model::ModelConfig mixed = MixedConfig(4, 2, 64, 2, 32);
  // 64 x (2 + 2) + 256 / 32 + 1
  EXPECT_EQ(blocks(mixed, 1000), (std::vector<int64_t>{265, 1000}));
  EXPECT_EQ(blocks(mixed, 100), (std::vector<int64_t>{100, 100}));
  model::ModelConfig windows = mixed;
  windows.sliding_window = {64, 128, 64, 128};
  EXPECT_EQ(blocks(windows, 1000), (std::vector<int64_t>{1000, 1000}));
  // Of one sequence of full length windows need less, too.
  MemoryRequest request = Request(1 << 20);
  request.max_model_len = 100000;
  model::ModelConfig longer = mixed;
  longer.max_position_embeddings = 100000;
  const MemoryPlan plan = DivideMemory(longer, tensor::DType::kBF16, request);
  request.budget_bytes = LeastBytes(plan, request);
  EXPECT_TRUE(PlanMemory(longer, tensor::DType::kBF16, request).ok());
  request.budget_bytes -= 4 * kRegionRounding;
  EXPECT_FALSE(PlanMemory(longer, tensor::DType::kBF16, request).ok());
}

// What a cache takes, and which cache takes so much, are inverse, whatever its groups.
TEST(MemoryPlan, BlocksWithinBytes) {
  base::Rng rng(5);
  for (int i = 0; i < 2000; ++i) {
    std::vector<kv::KvGroup> groups(1 + rng.Below(4));
    for (kv::KvGroup& group : groups) {
      group.layout.block_stride = static_cast<int64_t>(rng.Below(5) * 100);
      if (rng.Below(2) == 0) group.most_blocks = static_cast<int32_t>(rng.Below(50));
    }
    groups[0] = {.layout = groups[0].layout};
    groups[0].layout.block_stride = 100;
    const uint64_t bytes = rng.Below(30000), within = kv::KvBlocksWithin(groups, bytes, false);
    EXPECT_LE(kv::KvCacheBytes(groups, within, false), bytes);
    EXPECT_GT(kv::KvCacheBytes(groups, within + 1, false), bytes);
  }
}

TEST(MemoryPlan, NoMoreBlocksThanSequencesCanUse) {
  MemoryRequest request = Request(1ull << 30);
  request.max_num_seqs = 2;
  request.max_model_len = 100;
  const auto plan = PlanMemory(SmallConfig(), tensor::DType::kBF16, request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->num_blocks, 2 * 4);
  request.max_kv_blocks = 5;
  EXPECT_EQ(PlanMemory(SmallConfig(), tensor::DType::kBF16, request)->num_blocks, 5);
}

}  // namespace
}  // namespace forebay::layout
