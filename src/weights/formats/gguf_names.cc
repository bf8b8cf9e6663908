#include "weights/formats/gguf_names.h"

#include <algorithm>

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

template <size_t n>
std::string_view Lookup(const NamePair (&pairs)[n], std::string_view gguf) {
  const auto it =
      std::find_if(pairs, pairs + n, [&](const NamePair& pair) { return pair.gguf == gguf; });
  return it == pairs + n ? std::string_view() : it->hf;
}

}  // namespace

std::string HfTensorName(std::string_view gguf_name) {
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
      number && digits < stem.size() ? Lookup(kLayerNames, stem.substr(digits + 1)) : "";
  return hf.empty()
             ? unchanged
             : std::string("model.layers.").append(layer).append(".").append(hf).append(suffix);
}

}  // namespace forebay::weights
