#include "model/derived.h"

#include "base/check.h"

namespace forebay::model {
namespace {

// Elements of one block: `vectors` are norms and biases, which no token is multiplied with.
struct BlockSize {
  int64_t matrices = 0;
  int64_t vectors = 0;
  int64_t unused = 0;  // matrix elements of experts that a token does not go to
};

bool KeepsKv(const ModelConfig& c, int64_t layer) {
  return c.HasAttention(layer) && !c.HasState(layer) && c.KvLayerOf(layer) == layer;
}

BlockSize GroupedAttention(const ModelConfig& c, int64_t layer) {
  const auto [kv_heads, head_dim] = c.HeadsOf(layer);
  const int64_t q = c.num_heads * head_dim, kv = kv_heads * head_dim;
  const bool values_are_keys = c.full_values_are_keys && c.sliding_window[layer] == 0;
  const int64_t projected = !KeepsKv(c, layer) ? 0 : values_are_keys ? kv : 2 * kv;
  BlockSize block;
  block.matrices = c.hidden_size * (q + projected) + q * c.hidden_size;
  if (c.attention_gate) block.matrices += c.hidden_size * q;
  if (c.attention_bias) block.vectors += q + projected;
  if (c.attention_out_bias) block.vectors += c.hidden_size;
  if (c.qk_norm) block.vectors += (projected > 0 ? 2 : 1) * head_dim;
  return block;
}

BlockSize StateBlock(const ModelConfig& c) {
  const StateConfig& net = *c.states;
  BlockSize block{.matrices = c.hidden_size * (net.inputs() + net.values()),
                  .vectors = net.channels() * (net.taps + (net.conv_bias ? 1 : 0))};
  switch (net.kind) {
    case StateKind::kDeltaNet: block.vectors += 2 * net.value_heads + net.value_dim; break;
    case StateKind::kMamba2: block.vectors += 3 * net.value_heads + net.values(); break;
    case StateKind::kShortConv: break;
  }
  return block;
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

// Of a row and a unit of a block's width.
int64_t MatricesOfBlock(const ModelConfig& c) { return c.gated ? 3 : 2; }

BlockSize DenseFeedForward(const ModelConfig& c, int64_t layer) {
  const int64_t width = c.FfnWidth(layer), matrices = MatricesOfBlock(c);
  return {.matrices = matrices * c.hidden_size * width,
          .vectors = c.mlp_bias ? (matrices - 1) * width + c.hidden_size : 0};
}

BlockSize Experts(const ModelConfig& c, int64_t layer) {
  const MoeConfig& moe = *c.moe;
  const int64_t expert = ExpertParams(c);
  BlockSize dense;
  if (moe.beside_dense) {
    dense = DenseFeedForward(c, layer);
    dense.vectors += 4 * c.hidden_size + moe.num_experts;  // norms, the router's, its scales
  }
  return {.matrices = dense.matrices + (moe.shared_gate ? c.hidden_size : 0) +
                      moe.num_experts * expert +
                      c.hidden_size * (MatricesOfBlock(c) * moe.SharedWidth() + moe.num_experts),
          .vectors = dense.vectors + (moe.selection_bias ? moe.num_experts : 0),
          .unused = (moe.num_experts - moe.experts_per_token) * expert};
}

// What a layer takes of a row's token.
BlockSize LayerInputs(const ModelConfig& c) {
  if (c.layer_input_size == 0) return {};
  return {.matrices = 3 * c.hidden_size * c.layer_input_size, .vectors = c.hidden_size};
}

// Norms before and behind blocks, and the layer's scale.
int64_t LayerVectors(const ModelConfig& c, int64_t layer) {
  const int64_t blocks = (c.HasAttention(layer) ? 1 : 0) + (c.HasFfn(layer) ? 1 : 0);
  const int64_t norms = (c.norm_before ? blocks : 0) + (c.norm_after ? blocks : 0);
  return norms * c.hidden_size + (c.layer_scales ? 1 : 0);
}

}  // namespace

int64_t ExpertParams(const ModelConfig& config) {
  FB_CHECK(config.moe.has_value(), "{} has no experts", config.architecture);
  return MatricesOfBlock(config) * config.hidden_size * config.moe->intermediate_size;
}

DerivedFigures Derive(const ModelConfig& config) {
  const int64_t embedding = config.vocab_size * config.hidden_size;
  DerivedFigures figures;
  figures.params = embedding * (config.tie_word_embeddings ? 1 : 2) + config.hidden_size;
  if (config.layer_input_size > 0)  // a table and a norm for all layers
    figures.params += (config.vocab_size * config.num_layers + 1) * config.layer_input_size;
  figures.token_weights = embedding;
  const BlockSize inputs = LayerInputs(config);
  int64_t unused = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const BlockSize attention = !config.HasAttention(layer) ? BlockSize{}
                                : config.HasState(layer)    ? StateBlock(config)
                                : config.mla                ? LatentAttention(config)
                                                            : GroupedAttention(config, layer);
    const BlockSize ffn = !config.HasFfn(layer)      ? BlockSize{}
                          : config.HasExperts(layer) ? Experts(config, layer)
                                                     : DenseFeedForward(config, layer);
    figures.ffn_params += ffn.matrices + ffn.vectors;
    figures.params += attention.matrices + attention.vectors + LayerVectors(config, layer) +
                      ffn.matrices + ffn.vectors + inputs.matrices + inputs.vectors;
    figures.token_weights += attention.matrices + ffn.matrices - ffn.unused + inputs.matrices;
    unused += ffn.unused;
    if (!KeepsKv(config, layer)) continue;
    const auto [kv_heads, head_dim] = config.HeadsOf(layer);
    figures.kv_values += config.mla ? config.mla->kv_lora_rank + config.mla->qk_rope_head_dim
                                    : 2 * kv_heads * head_dim;
  }
  figures.active_params = figures.params - unused;
  return figures;
}

}  // namespace forebay::model
