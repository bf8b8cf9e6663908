// What a model is, in numbers: read from config.json (config_hf.cc) or GGUF metadata
// (config_gguf.cc), validated once, immutable after.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/reach.h"
#include "base/status.h"
#include "cost/operation.h"
#include "forebay/labels.h"
#include "kernels/packed_form.h"
#include "kernels/router.h"
#include "kernels/state_sizes.h"
#include "kernels/tile_form.h"
#include "model/pooling/pooling.h"
#include "tensor/dtype.h"

namespace forebay::model {

inline constexpr base::ErrorCode kConfigInvalid{"model_config_invalid"};
inline constexpr base::ErrorCode kConfigUnsupported{"model_config_unsupported"};
inline constexpr base::ErrorCode kArchitectureUnknown{"model_architecture_unknown"};

// Rotary embedding, scaling already applied: element i of a head, as it is packed, pairs with i +
// head_dim / 2 and turns by position * inv_freq[i]; cos and sin are both multiplied by
// cos_sin_scale. A frequency of 0: the pair is left alone, the scale included.
struct RopeSpec {
  std::vector<float> inv_freq;  // [head_dim / 2], computed in double, rounded once
  float cos_sin_scale = 1.0f;
  // longrope: the frequencies of runs of at most this many positions; 0: there are no others.
  int64_t short_positions = 0;
  std::vector<float> short_inv_freq;

  const std::vector<float>& FrequenciesOf(int64_t positions) const {
    return positions <= short_positions ? short_inv_freq : inv_freq;
  }
};

// What a feed-forward block multiplies its linear half by (kernels::LinearOutput); without a gate,
// what becomes of its one half.
enum class Activation : uint8_t { kSilu, kGelu, kClampedSilu, kErfGelu, kReluSquared };

// Attention's heads of a layer: of K and V, and elements of each head.
struct HeadSizes {
  int64_t kv_heads = 0, head_dim = 0;

  bool operator==(const HeadSizes&) const = default;
};

// A mixture of experts in place of some layers' feed-forward block. All experts are blocks of one
// width.
struct MoeConfig {
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t num_shared_experts = 0;  // every token's, beside the chosen ones
  int64_t intermediate_size = 0;   // one expert's
  // Of all shared ones together; 0: each is as wide as an expert.
  int64_t shared_intermediate_size = 0;
  bool selection_bias = false;  // the router adds a bias per expert when it chooses
  // See kernels::Router.
  kernels::RouterScores scores = kernels::RouterScores::kSoftmax;
  kernels::GroupScore group_score = kernels::GroupScore::kGreatest;
  int64_t num_groups = 1, chosen_groups = 1;
  bool renormalize = false;
  float epsilon = 0, scale = 1;
  bool shared_gate = false;   // the shared expert's output meets a sigmoid of the input
  bool weighs_input = false;  // the weight scales the expert's input, not its output
  // The experts stand beside the layer's dense block, each with norms of its own; the router norms
  // its input for itself, and weights are scaled by expert.
  bool beside_dense = false;
  // [num_layers] 0: the layer is dense, of ModelConfig::intermediate_size
  std::vector<uint8_t> has_experts;

  int64_t SharedWidth() const {
    return shared_intermediate_size > 0 ? shared_intermediate_size
                                        : num_shared_experts * intermediate_size;
  }
};

// Multi-head latent attention (arXiv 2405.04434, section 2.1): the cache holds a latent vector and
// one turned key for all heads. ModelConfig::head_dim is then the turned part of a head, and
// num_kv_heads means nothing.
struct MlaConfig {
  int64_t q_lora_rank = 0;  // 0: queries are projected in one step
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  // multiplies the fp32 score, what YaRN does to it included
  float softmax_scale = 0;
  // All rows attend in the absorbed form, those of prompts too.
  bool absorbed = false;

  int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  int64_t latent_dim() const { return kv_lora_rank + qk_rope_head_dim; }  // in the cache
};

// Kinds of layers that keep a state of a sequence (kernels/delta_net.h), each a row of
// model/blocks/state_rules.h.
enum class StateKind : uint8_t { kDeltaNet, kMamba2, kShortConv };

// Their heads, all of them or a rank's. Of Mamba-2 a key head is a group of B and C. A short
// convolution alone has no keys, and a value head is a run of its channels.
struct StateShape {
  StateKind kind = StateKind::kDeltaNet;
  int64_t key_heads = 0, value_heads = 0;
  int64_t key_dim = 0, value_dim = 0;
  int64_t taps = kernels::kConvTaps;
  // Of a row, behind what the convolution passes over: gates as wide as the values, and numbers a
  // value head.
  int64_t gates = 1, numbers = 2;

  int64_t values() const { return value_heads * value_dim; }
  // What the convolution passes over: q, k and v of a row (C, B and x).
  int64_t channels() const { return 2 * key_heads * key_dim + values(); }
  int64_t inputs() const { return channels() + gates * values() + numbers * value_heads; }
  // Floats of a state: the convolution's last inputs, and all heads' matrices.
  int64_t tail_floats() const { return (taps - 1) * channels(); }
  int64_t matrix_floats() const {
    return value_heads * kernels::StateMatrixFloats(key_dim, value_dim);
  }
};

struct StateConfig : StateShape {
  std::vector<uint8_t> has_state;  // [num_layers] 0: the layer keeps none
  bool conv_bias = false;
  int64_t normed_heads = 1;  // so many consecutive value heads go through one norm
  float least_step = 0;      // Mamba-2's
};

// How a model's files store its layers' matrices, if not in a compute
// type.
struct StoredFormat {
  cost::NumberFormat format = cost::NumberFormat::kBF16;
  // Modules that are stored in the compute type, as shell patterns: "model.layers.*.self_attn*".
  std::vector<std::string> excluded;

  // By the name of a tensor: routers, the embedding and the head never are.
  bool Covers(const std::string& tensor) const;
};

// How files store tensors that kernels read as they are stored, by their names; "{}" stands for an
// expert's number.
using TensorForms = std::map<std::string, kernels::TileForm, std::less<>>;

// Which matrices of layers multiply in int8 (kernels::TileForm::kW8A8).
enum class Int8 : uint8_t {
  kNone,
  kStored,  // those that files store in int8
  kAll,     // their codes are made when they are loaded
};

// A head that gives labels to a text.
struct Classifier {
  Pooling::Rows rows = Pooling::Rows::kFirst;
  std::vector<DenseLayer> layers;  // behind these rows; the last one has an output a label
  Labels labels;
};

struct ModelConfig {
  std::optional<Pooling> pooling;        // how it makes a vector of a prompt; nothing: it does not
  std::optional<Classifier> classifier;  // then `pooling` is its rows and layers
  std::string architecture;              // "LlamaForCausalLM", or GGUF's "llama"
  std::string family;  // id in the registry: "llama", "mistral", "qwen2", "qwen3", ...
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  bool attention_bias = false;      // q, k, v
  bool attention_out_bias = false;  // o
  bool mlp_bias = false;            // gate, up, down
  bool qk_norm = false;             // per-head RMS norm of q and k before rope
  bool qk_norm_of_rows = false;     // one over all heads of a row's q, and of its k, instead
  // Which norms a layer has: of a block's input, and of its output before it is added.
  bool norm_before = true, norm_after = false;
  bool norm_plus_one = false;  // norm weights are stored less 1
  bool norm_sums = false;      // such weights are stored with the 1; neither is rounded
  // Norms are of x - mean(x), with a bias where `norm_biases`.
  bool centered_norms = false, norm_biases = false;
  // Norms stand behind blocks, of the residual with the block's output added; the last layer's is
  // the final norm.
  bool norm_of_sum = false;
  bool gated = true;  // feed-forward blocks have a gate
  // A row sees all of its sequence, or so many positions on either side as its layer's window.
  bool both_ways = false;
  // Learned positions: rows of their table, the first position's row; and of token types.
  int64_t position_rows = 0, position_offset = 0, token_types = 0;
  bool embedding_norm = false;  // of the embedded rows
  Activation activation = Activation::kSilu;
  // Factors of embeddings, of what blocks add to the residual, of logits, and of scores (0: 1 /
  // sqrt(head_dim)).
  float embedding_factor = 1, residual_factor = 1, logits_factor = 1, score_factor = 0;
  float score_cap = 0, logits_cap = 0;  // kernels::Cap; 0: none
  bool attention_gate = false;  // attention's output meets a sigmoid that q's tensor projects
  bool sinks = false;           // a score a head that has no value
  std::vector<int32_t> sliding_window;  // [num_layers]; 0: full attention
  // [num_layers], 1 for layers without attention (nor a state), and without a feed-forward block;
  // empty: all layers have it.
  std::vector<uint8_t> without_attention, without_ffn;
  std::optional<HeadSizes> full_heads;  // of layers without a window, where they are others
  bool full_values_are_keys = false;    // there v is k as it is projected
  bool value_norm = false;              // v is normed by head, without weight
  // The last layers have neither K nor V: they read those of the last layer before them with the
  // same window. Their dense blocks may be of another width (0: of the same).
  int64_t kv_readers = 0, kv_reader_intermediate_size = 0;
  bool layer_scales = false;  // at its end a layer multiplies the residual by a scalar
  // What a layer takes of a row's token beside the residual (kernels/norm.h, LayerInputs); 0:
  // nothing.
  int64_t layer_input_size = 0;
  // [num_layers], 1 for layers without rope; empty: all layers have it. If some lack it, the others
  // may see only their own chunk of positions (0: all positions).
  std::vector<uint8_t> without_rope;
  int32_t attention_chunk = 0;
  // q's and k's norm stands behind rope, and is without weight unless there is a qk_norm; in the
  // layers that have rope.
  bool norm_after_rope = false;
  // In layers without rope, or in all, q is multiplied by ln(floor((position + shift) / floor) + 1)
  // * scale + 1; a floor of 0: it is not.
  double temperature_floor = 0, temperature_scale = 0;
  int64_t temperature_shift = 1;
  bool temperature_everywhere = false;
  int64_t max_position_embeddings = 0;
  RopeSpec rope;
  std::optional<RopeSpec> windowed_rope;  // of layers with a window, where it is another
  // The first elements of a stored head that rope turns; 0: all. Pairs are packed as RopeSpec says.
  int64_t rotary_dim = 0;
  // Stored rows of q and k have the elements that rope turns together side by side.
  bool rope_interleaved = false;
  std::optional<MoeConfig> moe;
  std::optional<MlaConfig> mla;
  std::optional<StateConfig> states;  // some layers keep a state in place of a KV cache
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
  tensor::DType stored_dtype = tensor::DType::kBF16;  // as config.json says; informative
  // Unknown keys of config.json (model/unused.h), for a warning.
  std::vector<std::string> unused_keys;
  // Devices that compute expand what their files hold; those of shapes alone keep it.
  std::optional<StoredFormat> stored;
  // How expanded matrices, and K and V, lie for the kernels of devices that compute.
  kernels::PackedForm packed = kernels::PackedForm::kPairs;
  // Devices that compute keep what this names as it is stored; null: they expand all.
  std::shared_ptr<const TensorForms> forms;
  // What files ask for, then what devices do. The head, latent attention and what is always
  // expanded are no part of it.
  Int8 int8 = Int8::kNone;
  // The same matrices become kernels::TileForm::kQ4_0 when they are loaded.
  bool int4 = false;
  // The KV cache's format: kFP8 or kInt8; nothing: the compute type.
  std::optional<cost::NumberFormat> stored_kv;

  // Latent attention's two forms: rows of prompts attend to K and V made of the latents.
  bool expands_prompts() const { return mla && !mla->absorbed; }
  int64_t RotaryDim() const { return rotary_dim > 0 ? rotary_dim : head_dim; }
  // What blocks give is added as it is, in the epilogue of their last matrix.
  bool AddsPlainly() const { return !norm_after && residual_factor == 1; }
  HeadSizes HeadsOf(int64_t layer) const {
    return full_heads && sliding_window[layer] == 0 ? *full_heads
                                                    : HeadSizes{num_kv_heads, head_dim};
  }
  // Elements of the layers' longest head.
  int64_t MostHeadDim() const {
    return full_heads ? std::max(full_heads->head_dim, head_dim) : head_dim;
  }
  // The layer whose K and V this one reads: itself, or one before it.
  int64_t KvLayerOf(int64_t layer) const {
    if (layer < num_layers - kv_readers) return layer;
    int64_t from = num_layers - kv_readers - 1;
    while (from > 0 && sliding_window[from] != sliding_window[layer]) --from;
    return from;
  }
  // The width of the layer's dense block.
  int64_t FfnWidth(int64_t layer) const {
    return kv_reader_intermediate_size > 0 && KvLayerOf(layer) != layer
               ? kv_reader_intermediate_size
               : intermediate_size;
  }
  int64_t MostFfnWidth() const { return std::max(intermediate_size, kv_reader_intermediate_size); }
  bool HasState(int64_t layer) const { return states && states->has_state[layer] != 0; }
  bool HasAttention(int64_t layer) const {
    return without_attention.empty() || without_attention[layer] == 0;
  }
  bool HasFfn(int64_t layer) const { return without_ffn.empty() || without_ffn[layer] == 0; }
  bool HasExperts(int64_t layer) const { return moe && moe->has_experts[layer] != 0; }
  // Layers with a feed-forward block that is no mixture of experts.
  int64_t DenseLayers() const {
    int64_t count = 0;
    for (int64_t layer = 0; layer < num_layers; ++layer)
      count += HasFfn(layer) && !HasExperts(layer);
    return count;
  }
  bool HasRope(int64_t layer) const { return without_rope.empty() || without_rope[layer] == 0; }
  base::Reach ReachOf(int64_t layer) const {
    const int32_t window = sliding_window[layer];
    if (both_ways) return {window, 0, window > 0 ? window - 1 : base::Reach::kAllAhead};
    return {window, HasRope(layer) ? attention_chunk : 0};
  }
};

// generation_config.json: sampling defaults that the model's makers advise. Unset: not in the file.
struct GenerationConfig {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, max_new_tokens;
  std::vector<int32_t> eos_token_ids;
};

}  // namespace forebay::model
