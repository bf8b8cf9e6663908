// Qwen3 with experts (Qwen3-30B-A3B, Qwen3-235B-A22B).
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kQwen3MoeArchitectures[] = {"Qwen3MoeForCausalLM", "qwen3moe"};

void ReadQwen3MoeExperts(JsonFields* in, ModelConfig* config) {
  MoeConfig moe;
  moe.num_experts = in->Int("num_experts", 1, kMostExperts);
  moe.experts_per_token = in->Int("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = in->Int("moe_intermediate_size", 1, kMostWidth);
  moe.renormalize = in->Bool("norm_topk_prob", false);
  const int64_t step = in->Int("decoder_sparse_step", 1, kMostLayers, 1);
  for (int64_t layer = 0; layer < config->num_layers; ++layer)
    moe.has_experts.push_back((layer + 1) % step == 0);
  for (const int32_t layer : in->LayerIndices("mlp_only_layers")) {
    if (layer < config->num_layers) moe.has_experts[layer] = 0;
  }
  config->moe = std::move(moe);
}

}  // namespace

const Family kQwen3Moe{
    "qwen3_moe",
    "Qwen3 MoE",
    kQwen3MoeArchitectures,
    &ExpertLayerNames,
    {.qk_norm = true, .window = WindowRule::kUpperLayers, .read_more = &ReadQwen3MoeExperts}};

}  // namespace forebay::model
