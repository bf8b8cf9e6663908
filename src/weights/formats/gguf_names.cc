#include "weights/formats/gguf_names.h"

#include <algorithm>
#include <span>

namespace forebay::weights {
namespace {

struct NamePair {
  std::string_view gguf, hf;
};

constexpr NamePair kModelNames[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};

// After "blk.N." and "model.layers.N.".
constexpr NamePair kLayerNames[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
};

// What an architecture calls otherwise; these come first.
constexpr NamePair kGemma[] = {{"post_attention_norm", "post_attention_layernorm"},
                               {"ffn_norm", "pre_feedforward_layernorm"},
                               {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr NamePair kOlmo2[] = {{"post_attention_norm", "post_attention_layernorm"},
                               {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr NamePair kGlm4[] = {{"post_attention_norm", "post_self_attn_layernorm"},
                              {"post_ffw_norm", "post_mlp_layernorm"},
                              {"ffn_up", "mlp.gate_up_proj"}};
constexpr NamePair kPhi3[] = {{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}};
constexpr NamePair kGptOss[] = {{"post_attention_norm", "post_attention_layernorm"},
                                {"ffn_gate_inp", "mlp.router"}};
struct Dialect {
  std::string_view architecture;
  std::span<const NamePair> layer_names;
};
constexpr Dialect kDialects[] = {{"gemma2", kGemma}, {"gemma3", kGemma}, {"olmo2", kOlmo2},
                                 {"glm4", kGlm4},    {"phi3", kPhi3},    {"gpt-oss", kGptOss}};

std::string_view Lookup(std::span<const NamePair> pairs, std::string_view gguf) {
  const auto it = std::ranges::find(pairs, gguf, &NamePair::gguf);
  return it == pairs.end() ? std::string_view() : it->hf;
}

std::string_view LookupInLayer(std::string_view architecture, std::string_view gguf) {
  const auto* const dialect = std::ranges::find(kDialects, architecture, &Dialect::architecture);
  const std::string_view own =
      dialect == std::end(kDialects) ? "" : Lookup(dialect->layer_names, gguf);
  return own.empty() ? Lookup(kLayerNames, gguf) : own;
}

}  // namespace

bool TurnsNeighbours(std::string_view architecture) {
  return architecture == "llama" || architecture == "granite" || architecture == "smollm3";
}

std::string HfTensorName(std::string_view architecture, std::string_view gguf_name) {
  const std::string unchanged(gguf_name);
  const size_t dot = gguf_name.rfind('.');
  if (dot == std::string_view::npos) return unchanged;
  const std::string_view suffix = gguf_name.substr(dot);  // ".weight" or ".bias"
  std::string_view stem = gguf_name.substr(0, dot);

  constexpr std::string_view kLayer = "blk.";
  if (!stem.starts_with(kLayer)) {
    const std::string_view hf = Lookup(kModelNames, stem);
    return hf.empty() ? unchanged : std::string(hf).append(suffix);
  }
  stem.remove_prefix(kLayer.size());
  const size_t digits = std::min(stem.find('.'), stem.size());
  const std::string_view layer = stem.substr(0, digits);
  const bool number =
      !layer.empty() && layer.find_first_not_of("0123456789") == std::string_view::npos;
  const std::string_view hf =
      number && digits < stem.size() ? LookupInLayer(architecture, stem.substr(digits + 1)) : "";
  const std::string prefix = std::string("model.layers.").append(layer).append(".");
  // The one vector that Hugging Face has no suffix for.
  if (number && stem.ends_with(".attn_sinks") && suffix == ".weight")
    return prefix + "self_attn.sinks";
  return hf.empty() ? unchanged : std::string(prefix).append(hf).append(suffix);
}

}  // namespace forebay::weights
