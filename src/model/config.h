// What a model is, in numbers: read from config.json (config_hf.cc) or GGUF metadata (config_gguf.cc), validated once,
// immutable after.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace forebay::model {

inline constexpr base::ErrorCode kConfigInvalid{"model_config_invalid"};
inline constexpr base::ErrorCode kConfigUnsupported{"model_config_unsupported"};
inline constexpr base::ErrorCode kArchitectureUnknown{"model_architecture_unknown"};
inline constexpr base::ErrorCode kArchitectureNotRunnable{"model_architecture_not_runnable"};

// Rotary embedding, scaling already applied: element i of a head pairs with i + head_dim / 2 and turns by
// position * inv_freq[i]; cos and sin are both multiplied by cos_sin_scale.
struct RopeSpec {
  std::vector<float> inv_freq;  // [head_dim / 2], computed in double, rounded once
  float cos_sin_scale = 1.0f;
};

// A mixture of experts in place of some layers' feed-forward block. All experts are gated SiLU blocks of one width.
struct MoeConfig {
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t num_shared_experts = 0;   // every token's, beside the chosen ones
  int64_t intermediate_size = 0;    // of one expert; a shared one has the same
  bool selection_bias = false;      // the router adds a bias per expert when it chooses
  std::vector<uint8_t> has_experts;  // [num_layers] 0: the layer is dense, of ModelConfig::intermediate_size
};

// Multi-head latent attention (arXiv 2405.04434, section 2.1): the cache holds a latent vector and one turned key for all
// heads. ModelConfig::head_dim is then the turned part of a head, and num_kv_heads means nothing.
struct MlaConfig {
  int64_t q_lora_rank = 0;  // 0: queries are projected in one step
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", or GGUF's "llama"
  std::string family;        // id in the registry: "llama", "mistral", "qwen2", "qwen3", ...
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
  std::vector<int32_t> sliding_window;  // [num_layers]; 0: full attention
  int64_t max_position_embeddings = 0;
  RopeSpec rope;
  std::optional<MoeConfig> moe;
  std::optional<MlaConfig> mla;
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
  tensor::DType stored_dtype = tensor::DType::kBF16;  // as config.json says; informative
};

// generation_config.json: sampling defaults that the model's makers advise. Unset: not in the file.
struct GenerationConfig {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, max_new_tokens;
  std::vector<int32_t> eos_token_ids;
};

}  // namespace forebay::model
