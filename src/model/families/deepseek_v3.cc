// DeepSeek V3 and R1: latent attention, experts with shared ones, dense first layers. Known by its configuration alone.
// The layer that predicts one more token (num_nextn_predict_layers) is not counted.
#include "model/config_reader.h"
#include "model/families/families.h"
#include "model/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kArchitectures[] = {"DeepseekV3ForCausalLM"};

void ReadLatentAttention(JsonFields* in, ModelConfig* config) {
  MlaConfig mla;
  mla.q_lora_rank = in->Int("q_lora_rank", 1, kMostLoraRank, 0);
  mla.kv_lora_rank = in->Int("kv_lora_rank", 1, kMostLoraRank);
  mla.qk_nope_head_dim = in->Int("qk_nope_head_dim", 1, kMostHeadDim);
  mla.qk_rope_head_dim = in->Int("qk_rope_head_dim", 1, kMostHeadDim);
  mla.v_head_dim = in->Int("v_head_dim", 1, kMostHeadDim);
  config->head_dim = mla.qk_rope_head_dim;
  config->mla = mla;
}

void ReadMore(JsonFields* in, ModelConfig* config) {
  ReadLatentAttention(in, config);
  MoeConfig moe;
  moe.num_experts = in->Int("n_routed_experts", 1, kMostExperts);
  moe.experts_per_token = in->Int("num_experts_per_tok", 1, kMostExperts);
  moe.num_shared_experts = in->Int("n_shared_experts", 0, kMostExperts, 0);
  moe.intermediate_size = in->Int("moe_intermediate_size", 1, kMostWidth);
  moe.selection_bias = true;
  const int64_t first = in->Int("first_k_dense_replace", 0, kMostLayers, 0);
  const int64_t step = in->Int("moe_layer_freq", 1, kMostLayers, 1);
  for (int64_t layer = 0; layer < config->num_layers; ++layer) {
    moe.has_experts.push_back(layer >= first && layer % step == 0);
  }
  config->moe = std::move(moe);
}

}  // namespace

const Family kDeepseekV3{"deepseek_v3", kArchitectures, nullptr, {.read_more = &ReadMore}};

}  // namespace forebay::model
