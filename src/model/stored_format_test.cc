#include <gtest/gtest.h>

#include <string>

#include "model/builtin_configs.h"
#include "model/decoder_weights.h"

namespace forebay::model {
namespace {

using cost::NumberFormat;

DecoderPlan PlanOf(const char* name) {
  const auto config = LoadBuiltinConfig(name);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return PlanDecoder(*config, tensor::DType::kBF16);
}

// Bytes of all matrices whose tensors have this in their names.
double BytesOf(const DecoderPlan& plan, const std::string& part) {
  double sum = 0;
  for (const LayerPlan& layer : plan.layers) {
    for (const PlannedMatrix& matrix : layer.matrices) {
      if (matrix.plan.tensors.front().find(part) != std::string::npos)
        sum += static_cast<double>(matrix.plan.TileBytes());
    }
  }
  return sum;
}

TEST(StoredFormat, NVFP4StoresExpertsAndLeavesAttentionAlone) {
  const DecoderPlan bf16 = PlanOf("DeepSeek-R1"), nvfp4 = PlanOf("DeepSeek-R1-NVFP4");
  const double experts = BytesOf(nvfp4, "experts.{}");
  EXPECT_NEAR(experts / (58 * 256) * 1e-6, 24.77, 0.005);
  EXPECT_NEAR(experts * 1e-9, 367.8, 0.05);
  EXPECT_EQ(experts, BytesOf(bf16, "experts.{}") * 0.5625 / 2);
  EXPECT_EQ(BytesOf(nvfp4, "self_attn"), BytesOf(bf16, "self_attn"));
  EXPECT_EQ(BytesOf(nvfp4, "mlp.gate.weight"), BytesOf(bf16, "mlp.gate.weight"));
  EXPECT_EQ(nvfp4.head.TileBytes(), bf16.head.TileBytes());
}

TEST(StoredFormat, FP8StoresAllMatricesOfLayersButRouters) {
  const DecoderPlan bf16 = PlanOf("DeepSeek-R1"), fp8 = PlanOf("DeepSeek-R1-FP8");
  for (const char* part : {"self_attn", "experts.{}", "shared_experts"})
    EXPECT_EQ(BytesOf(fp8, part), BytesOf(bf16, part) / 2) << part;
  EXPECT_EQ(BytesOf(fp8, "mlp.gate.weight"), BytesOf(bf16, "mlp.gate.weight"));
}

TEST(StoredFormat, PatternsExcludeAModuleAndWhatIsBelowIt) {
  const StoredFormat stored{NumberFormat::kNVFP4, {"model.layers.*.self_attn*", "model.layers.0"}};
  EXPECT_TRUE(stored.Covers("model.layers.3.mlp.up_proj.weight"));
  EXPECT_TRUE(stored.Covers("model.layers.3.mlp.gate_proj.weight"));
  EXPECT_FALSE(stored.Covers("model.layers.3.mlp.gate.weight"));
  EXPECT_FALSE(stored.Covers("model.layers.3.feed_forward.router.weight"));
  EXPECT_FALSE(stored.Covers("model.layers.3.self_attn.o_proj.weight"));
  EXPECT_FALSE(stored.Covers("model.layers.0.mlp.up_proj.weight"));
  EXPECT_TRUE(stored.Covers("model.layers.01.mlp.up_proj.weight"));
}

}  // namespace
}  // namespace forebay::model
