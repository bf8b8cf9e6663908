#include "layout/memory_plan.h"

#include <gtest/gtest.h>

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
