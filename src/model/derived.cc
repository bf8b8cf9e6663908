#include "model/derived.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/delta_net.h"

namespace forebay::model {
namespace {

// Elements of one block: `vectors` are norms and biases, which no token is multiplied with.
struct BlockSize {
  int64_t matrices = 0;
  int64_t vectors = 0;
  int64_t unused = 0;  // matrix elements of experts that a token does not go to
};

BlockSize GroupedAttention(const ModelConfig& c) {
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  BlockSize block;
  block.matrices = c.hidden_size * (q + 2 * kv) + q * c.hidden_size;
  if (c.attention_gate) block.matrices += c.hidden_size * q;
  if (c.attention_bias) block.vectors += q + 2 * kv;
  if (c.attention_out_bias) block.vectors += c.hidden_size;
  if (c.qk_norm) block.vectors += 2 * c.head_dim;
  return block;
}

BlockSize DeltaNet(const ModelConfig& c) {
  const DeltaNetConfig& net = *c.delta_net;
  return {.matrices = c.hidden_size * (net.inputs() + net.value_heads * net.value_dim),
          .vectors = net.channels() * kernels::kConvTaps + 2 * net.value_heads + net.value_dim};
}

BlockSize LatentAttention(const ModelConfig& c) {
  const MlaConfig& mla = *c.mla;
  const int64_t q = c.num_heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim);
  BlockSize block;
  block.matrices = mla.q_lora_rank == 0 ? c.hidden_size * q : (c.hidden_size + q) * mla.q_lora_rank;
  block.matrices += c.hidden_size * (mla.kv_lora_rank + mla.qk_rope_head_dim);
  block.matrices += mla.kv_lora_rank * c.num_heads * (mla.qk_nope_head_dim + mla.v_head_dim);
  block.matrices += c.num_heads * mla.v_head_dim * c.hidden_size;
  block.vectors = mla.q_lora_rank + mla.kv_lora_rank;
  return block;
}

BlockSize DenseFeedForward(const ModelConfig& c) {
  return {.matrices = 3 * c.hidden_size * c.intermediate_size,
          .vectors = c.mlp_bias ? 2 * c.intermediate_size + c.hidden_size : 0};
}

BlockSize Experts(const ModelConfig& c) {
  const MoeConfig& moe = *c.moe;
  const int64_t expert = ExpertParams(c);
  return {.matrices = (moe.shared_gate ? c.hidden_size : 0) +
                      (moe.num_experts + moe.num_shared_experts) * expert +
                      c.hidden_size * moe.num_experts,
          .vectors = moe.selection_bias ? moe.num_experts : 0,
          .unused = (moe.num_experts - moe.experts_per_token) * expert};
}

}  // namespace

int64_t ExpertParams(const ModelConfig& config) {
  FB_CHECK(config.moe.has_value(), "{} has no experts", config.architecture);
  return 3 * config.hidden_size * config.moe->intermediate_size;
}

DerivedFigures Derive(const ModelConfig& config) {
  const int64_t embedding = config.vocab_size * config.hidden_size;
  DerivedFigures figures;
  figures.params = embedding * (config.tie_word_embeddings ? 1 : 2) + config.hidden_size;
  figures.token_weights = embedding;
  int64_t unused = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const BlockSize attention = config.HasState(layer) ? DeltaNet(config)
                                : config.mla           ? LatentAttention(config)
                                                       : GroupedAttention(config);
    const bool has_experts = config.moe && config.moe->has_experts[layer] != 0;
    const BlockSize ffn = has_experts ? Experts(config) : DenseFeedForward(config);
    figures.ffn_params += ffn.matrices + ffn.vectors;
    figures.params += attention.matrices + attention.vectors + 2 * config.hidden_size +
                      ffn.matrices + ffn.vectors;
    figures.token_weights += attention.matrices + ffn.matrices - ffn.unused;
    unused += ffn.unused;
  }
  figures.active_params = figures.params - unused;
  int64_t cached_layers = config.num_layers;
  if (config.delta_net) cached_layers = std::ranges::count(config.delta_net->has_state, 0);
  figures.kv_values =
      cached_layers * (config.mla ? config.mla->kv_lora_rank + config.mla->qk_rope_head_dim
                                  : 2 * config.num_kv_heads * config.head_dim);
  return figures;
}

}  // namespace forebay::model
