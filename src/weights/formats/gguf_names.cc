#include "weights/formats/gguf_names.h"

#include <fmt/format.h>

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
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
    {"token_embd_norm", "model.embedding_norm"},  // LFM2's last norm
};

// After "blk.N." and "model.layers.N.": without ".weight" or ".bias", or whole.
constexpr NamePair kLayerNames[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
};

// What an architecture calls otherwise; these come first.
constexpr NamePair kGemma[] = {{"post_attention_norm", "post_attention_layernorm"},
                               {"ffn_norm", "pre_feedforward_layernorm"},
                               {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr NamePair kGemma4[] = {{"post_attention_norm", "post_attention_layernorm"},
                                {"ffn_norm", "pre_feedforward_layernorm"},
                                {"post_ffw_norm", "post_feedforward_layernorm"},
                                {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
                                {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
                                {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
                                {"layer_output_scale.weight", "layer_scalar"},
                                {"inp_gate", "per_layer_input_gate"},
                                {"proj", "per_layer_projection"},
                                {"post_norm", "post_per_layer_input_norm"},
                                {"ffn_gate_inp.weight", "router.proj.weight"},
                                {"ffn_gate_inp.scale", "router.scale"},
                                {"ffn_gate_up_exps", "experts.gate_up_proj"},
                                {"ffn_gate_exps", "experts.gate_proj"},
                                {"ffn_up_exps", "experts.up_proj"},
                                {"ffn_down_exps.weight", "experts.down_proj.weight"},
                                {"ffn_down_exps.scale", "router.per_expert_scale"}};
constexpr NamePair kOlmo2[] = {{"post_attention_norm", "post_attention_layernorm"},
                               {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr NamePair kGlm4[] = {{"post_attention_norm", "post_self_attn_layernorm"},
                              {"post_ffw_norm", "post_mlp_layernorm"},
                              {"ffn_up", "mlp.gate_up_proj"}};
constexpr NamePair kGlm4Moe[] = {{"post_attention_norm", "post_attention_layernorm"}};
constexpr NamePair kPhi3[] = {{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}};
constexpr NamePair kGptOss[] = {{"post_attention_norm", "post_attention_layernorm"},
                                {"ffn_gate_inp", "mlp.router"}};
constexpr NamePair kHunyuan[] = {{"attn_q_norm", "self_attn.query_layernorm"},
                                 {"attn_k_norm", "self_attn.key_layernorm"}};
constexpr NamePair kMiniMaxM2[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"}};
constexpr NamePair kLlama4[] = {{"ffn_gate", "feed_forward.gate_proj"},
                                {"ffn_up", "feed_forward.up_proj"},
                                {"ffn_down", "feed_forward.down_proj"},
                                {"ffn_gate_inp", "feed_forward.router"},
                                {"ffn_gate_exps", "feed_forward.experts.gate_proj"},
                                {"ffn_up_exps", "feed_forward.experts.up_proj"},
                                {"ffn_down_exps", "feed_forward.experts.down_proj"},
                                {"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"},
                                {"ffn_up_shexp", "feed_forward.shared_expert.up_proj"},
                                {"ffn_down_shexp", "feed_forward.shared_expert.down_proj"}};
constexpr NamePair kQwen35[] = {{"post_attention_norm", "post_attention_layernorm"},
                                {"attn_qkv", "linear_attn.in_proj_qkv"},
                                {"attn_gate", "linear_attn.in_proj_z"},
                                {"ssm_beta", "linear_attn.in_proj_b"},
                                {"ssm_alpha", "linear_attn.in_proj_a"},
                                {"ssm_ba", "linear_attn.in_proj_ba"},
                                {"ssm_conv1d", "linear_attn.conv1d"},
                                {"ssm_a", "linear_attn.A_log"},
                                {"ssm_dt.bias", "linear_attn.dt_bias"},
                                {"ssm_norm", "linear_attn.norm"},
                                {"ssm_out", "linear_attn.out_proj"},
                                {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                {"ffn_down_shexp", "mlp.shared_expert.down_proj"}};
constexpr NamePair kDeepseek2[] = {{"attn_q_a", "self_attn.q_a_proj"},
                                   {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                                   {"attn_q_b", "self_attn.q_b_proj"},
                                   {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                                   {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                                   {"attn_kv_b", "self_attn.kv_b_proj"},
                                   {"attn_k_b", "self_attn.k_b_proj"},
                                   {"attn_v_b", "self_attn.v_b_proj"}};
constexpr NamePair kLfm2[] = {{"attn_norm", "operator_norm"},
                              {"attn_q_norm", "self_attn.q_layernorm"},
                              {"attn_k_norm", "self_attn.k_layernorm"},
                              {"attn_output", "self_attn.out_proj"},
                              {"ffn_norm", "ffn_norm"},
                              {"ffn_gate", "feed_forward.w1"},
                              {"ffn_up", "feed_forward.w3"},
                              {"ffn_down", "feed_forward.w2"},
                              {"shortconv.in_proj", "conv.in_proj"},
                              {"shortconv.conv", "conv.conv"},
                              {"shortconv.out_proj", "conv.out_proj"}};
constexpr NamePair kNemotronH[] = {{"attn_norm", "norm"},
                                   {"attn_q", "mixer.q_proj"},
                                   {"attn_k", "mixer.k_proj"},
                                   {"attn_v", "mixer.v_proj"},
                                   {"attn_output", "mixer.o_proj"},
                                   {"ffn_up", "mixer.up_proj"},
                                   {"ffn_down", "mixer.down_proj"},
                                   {"ffn_gate_inp", "mixer.gate"},
                                   {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias"},
                                   {"ffn_up_exps", "mixer.experts.up_proj"},
                                   {"ffn_down_exps", "mixer.experts.down_proj"},
                                   {"ffn_up_shexp", "mixer.shared_experts.up_proj"},
                                   {"ffn_down_shexp", "mixer.shared_experts.down_proj"},
                                   {"ssm_in", "mixer.in_proj"},
                                   {"ssm_conv1d", "mixer.conv1d"},
                                   {"ssm_a", "mixer.A_log"},
                                   {"ssm_d", "mixer.D"},
                                   {"ssm_dt.bias", "mixer.dt_bias"},
                                   {"ssm_norm", "mixer.norm"},
                                   {"ssm_out", "mixer.out_proj"}};
// The shared block's gate and up are one matrix in folders.
constexpr NamePair kGraniteHybrid[] = {{"ssm_in", "mamba.in_proj"},
                                       {"ssm_conv1d", "mamba.conv1d"},
                                       {"ssm_a", "mamba.A_log"},
                                       {"ssm_d", "mamba.D"},
                                       {"ssm_dt.bias", "mamba.dt_bias"},
                                       {"ssm_norm", "mamba.norm"},
                                       {"ssm_out", "mamba.out_proj"},
                                       {"ffn_gate", "shared_mlp.gate_proj"},
                                       {"ffn_up", "shared_mlp.up_proj"},
                                       {"ffn_down", "shared_mlp.output_linear"},
                                       {"ffn_gate_shexp", "shared_mlp.gate_proj"},
                                       {"ffn_up_shexp", "shared_mlp.up_proj"},
                                       {"ffn_down_shexp", "shared_mlp.output_linear"},
                                       {"ffn_gate_inp", "block_sparse_moe.router.layer"},
                                       {"ffn_gate_exps", "block_sparse_moe.experts.gate_proj"},
                                       {"ffn_up_exps", "block_sparse_moe.experts.up_proj"},
                                       {"ffn_down_exps", "block_sparse_moe.experts.down_proj"}};
struct Dialect {
  std::string_view architecture;
  std::span<const NamePair> layer_names;
};
constexpr Dialect kDialects[] = {{"gemma2", kGemma},
                                 {"gemma3", kGemma},
                                 {"gemma4", kGemma4},
                                 {"olmo2", kOlmo2},
                                 {"exaone4", kOlmo2},
                                 {"glm4", kGlm4},
                                 {"glm4moe", kGlm4Moe},
                                 {"phi3", kPhi3},
                                 {"gpt-oss", kGptOss},
                                 {"hunyuan-dense", kHunyuan},
                                 {"minimax-m2", kMiniMaxM2},
                                 {"llama4", kLlama4},
                                 {"deepseek2", kDeepseek2},
                                 {"qwen35", kQwen35},
                                 {"qwen35moe", kQwen35},
                                 {"qwen3next", kQwen35},
                                 {"lfm2", kLfm2},
                                 {"nemotron_h", kNemotronH},
                                 {"nemotron_h_moe", kNemotronH},
                                 {"granitehybrid", kGraniteHybrid}};

std::string_view Lookup(std::span<const NamePair> pairs, std::string_view gguf) {
  const auto it = std::ranges::find(pairs, gguf, &NamePair::gguf);
  return it == pairs.end() ? std::string_view() : it->hf;
}

// A name within a layer by a table: the whole of it, or all but ".weight" or ".bias"; "": it is not
// there.
std::string InTable(std::span<const NamePair> pairs, std::string_view name) {
  if (const std::string_view whole = Lookup(pairs, name); !whole.empty()) return std::string(whole);
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return "";
  const std::string_view stem = Lookup(pairs, name.substr(0, dot));
  return stem.empty() ? "" : std::string(stem).append(name.substr(dot));
}

std::string LookupInLayer(std::string_view architecture, std::string_view name) {
  const auto* const dialect = std::ranges::find(kDialects, architecture, &Dialect::architecture);
  std::string own;
  if (dialect != std::end(kDialects)) own = InTable(dialect->layer_names, name);
  return own.empty() ? InTable(kLayerNames, name) : own;
}

}  // namespace

std::string HfTensorName(std::string_view architecture, std::string_view gguf_name) {
  const std::string unchanged(gguf_name);
  constexpr std::string_view kLayer = "blk.";
  if (!gguf_name.starts_with(kLayer)) {
    const std::string hf = InTable(kModelNames, gguf_name);
    return hf.empty() ? unchanged : hf;
  }
  gguf_name.remove_prefix(kLayer.size());
  const size_t digits = gguf_name.find('.');
  if (digits == std::string_view::npos) return unchanged;
  const std::string_view layer = gguf_name.substr(0, digits);
  if (layer.empty() || layer.find_first_not_of("0123456789") != std::string_view::npos)
    return unchanged;
  const std::string hf = LookupInLayer(architecture, gguf_name.substr(digits + 1));
  return hf.empty() ? unchanged : fmt::format("model.layers.{}.{}", layer, hf);
}

}  // namespace forebay::weights
