// GGUF files of the families that config_gguf.cc reads as a config.json, written here as
// llama.cpp's converter writes them (llama-cpp-python 0.3.36, vendor/llama.cpp/conversion): the
// answers are those of the folder, to the byte.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include "base/json.h"
#include "testing/answers.h"

namespace forebay {
namespace {

using testing_support::ForEachTensor;

// Tensors and keys, put together in any order; a key's last value counts.
class GgufModel {
 public:
  // quantised: matrices in Q8_0, all with the scale kStep.
  explicit GgufModel(std::string architecture, bool quantised = false)
      : architecture_(std::move(architecture)), quantised_(quantised) {}
  static constexpr float kStep = 1.0f / 512;
  static bool Fits(const std::vector<int64_t>& shape) {
    return shape.size() > 1 && shape.back() % 32 == 0;
  }

  void Int(std::string_view key, int64_t value) {
    Set(key, [value](std::string_view key, weights::GgufBytes* b) {
      b->Value<uint32_t>(key, 4, static_cast<uint32_t>(value));
    });
  }
  void Real(std::string_view key, double value) {
    Set(key, [value](std::string_view key, weights::GgufBytes* b) {
      b->Value<float>(key, 6, static_cast<float>(value));
    });
  }
  void String(std::string_view key, std::string value) {
    Set(key, [value](std::string_view key, weights::GgufBytes* b) { b->String(key, value); });
  }
  void Bool(std::string_view key, bool value) {
    Set(key, [value](std::string_view key, weights::GgufBytes* b) {
      b->Value<uint8_t>(key, 7, value ? 1 : 0);
    });
  }
  // An array of int32.
  void Ints(std::string_view key, const std::vector<int64_t>& values) {
    Set(key, [values](std::string_view key, weights::GgufBytes* b) {
      b->Text(key).Raw<uint32_t>(9).Raw<uint32_t>(5).Raw<uint64_t>(values.size());
      for (const int64_t value : values) b->Raw(static_cast<int32_t>(value));
    });
  }
  void LeaveOut(std::string name) { left_out_ = std::move(name); }
  void Tensor(std::string name, std::vector<int64_t> shape, const std::vector<float>& values) {
    if (name == left_out_) return;
    const bool quantised =
        quantised_ && Fits(shape) && !name.ends_with(".bias") && !name.ends_with("_norm.weight");
    tensors_.push_back({std::move(name), std::move(shape), quantised ? 8u : 0u, data_.size()});
    if (quantised) {
      for (size_t i = 0; i < values.size(); ++i) {
        if (i % 32 == 0) weights::Append<uint16_t>(&data_, 0x1800);  // 2^-9
        weights::Append(&data_, static_cast<int8_t>(values[i] / kStep));
      }
    } else {
      data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
    data_.resize((data_.size() + 31) / 32 * 32);
  }
  // Returns the file's path.
  std::string Write() {
    weights::GgufBytes b(tensors_.size(), keys_.size() + 1);
    b.String("general.architecture", architecture_);
    for (const auto& [key, write] : keys_) write(key, &b);
    for (const Entry& entry : tensors_) {
      b.Text(entry.name).Raw(static_cast<uint32_t>(entry.shape.size()));
      for (size_t i = entry.shape.size(); i-- > 0;) b.Raw(static_cast<uint64_t>(entry.shape[i]));
      b.Raw(entry.type).Raw<uint64_t>(entry.offset);
    }
    b.Data(data_);
    folder_.Write("model.gguf", b.bytes());
    return folder_.path() + "/model.gguf";
  }

 private:
  using WriteKey = std::function<void(std::string_view key, weights::GgufBytes*)>;
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
    uint32_t type;
    size_t offset;
  };
  void Set(std::string_view key, WriteKey write) {
    keys_[architecture_ + "." + std::string(key)] = std::move(write);
  }
  const std::string architecture_;
  const bool quantised_;
  std::string left_out_;
  base::TemporaryFolder folder_;
  std::map<std::string, WriteKey> keys_;
  std::vector<Entry> tensors_;
  std::string data_;
};

// Names within a layer: of the folder, and of the file.
using Names = std::vector<std::pair<std::string_view, std::string_view>>;
using Config = simdjson::dom::element;

struct Stored {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

struct GgufFamily {
  const char* model;
  const char* architecture;
  Names names;            // that are not the usual ones
  bool plus_one = false;  // norms are written as 1 + w
  bool permuted = false;  // rows of Q and K are reordered
  // Keys that it alone has, and what the converter makes of one tensor of the folder.
  void (*add_keys)(const Config& config, GgufModel* out) = nullptr;
  std::vector<Stored> (*convert)(const Config& config, Stored tensor) = nullptr;
  Names edits = {};  // of config.json: what the format has no place for
  bool fused_experts = false;
  // Makes of a golden model's tensor those of a model that is not among them.
  std::vector<Stored> (*derive)(Stored tensor) = nullptr;
};

const Names kUsualNames = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.router", "ffn_gate_inp"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
};
const Names kSandwich = {{"post_attention_layernorm", "post_attention_norm"},
                         {"pre_feedforward_layernorm", "ffn_norm"},
                         {"post_feedforward_layernorm", "post_ffw_norm"}};

const Names kDeepseekNames = {{"self_attn.q_a_proj", "attn_q_a"},
                              {"self_attn.q_a_layernorm", "attn_q_a_norm"},
                              {"self_attn.q_b_proj", "attn_q_b"},
                              {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
                              {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
                              {"self_attn.kv_b_proj", "attn_kv_b"},
                              {"self_attn.k_b_proj", "attn_k_b"},
                              {"self_attn.v_b_proj", "attn_v_b"}};
const Names kGemma4Names = {{"post_attention_layernorm", "post_attention_norm"},
                            {"pre_feedforward_layernorm", "ffn_norm"},
                            {"post_feedforward_layernorm", "post_ffw_norm"},
                            {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
                            {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
                            {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
                            {"layer_scalar", "layer_output_scale.weight"},
                            {"per_layer_input_gate", "inp_gate"},
                            {"per_layer_projection", "proj"},
                            {"post_per_layer_input_norm", "post_norm"},
                            {"router.proj", "ffn_gate_inp"},
                            {"router.scale", "ffn_gate_inp.scale"},
                            {"router.per_expert_scale", "ffn_down_exps.scale"}};
const Names kQwen35Names = {{"post_attention_layernorm", "post_attention_norm"},
                            {"linear_attn.in_proj_qkv", "attn_qkv"},
                            {"linear_attn.in_proj_z", "attn_gate"},
                            {"linear_attn.in_proj_b", "ssm_beta"},
                            {"linear_attn.in_proj_a", "ssm_alpha"},
                            {"linear_attn.in_proj_ba", "ssm_ba"},
                            {"linear_attn.conv1d", "ssm_conv1d"},
                            {"linear_attn.A_log", "ssm_a"},
                            {"linear_attn.dt_bias", "ssm_dt.bias"},
                            {"linear_attn.norm", "ssm_norm"},
                            {"linear_attn.out_proj", "ssm_out"},
                            {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                            {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                            {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                            {"mlp.shared_expert.down_proj", "ffn_down_shexp"}};

const Names kLfm2Names = {{"operator_norm", "attn_norm"},
                          {"self_attn.q_layernorm", "attn_q_norm"},
                          {"self_attn.k_layernorm", "attn_k_norm"},
                          {"self_attn.out_proj", "attn_output"},
                          {"ffn_norm", "ffn_norm"},
                          {"feed_forward.w1", "ffn_gate"},
                          {"feed_forward.w2", "ffn_down"},
                          {"feed_forward.w3", "ffn_up"},
                          {"conv.in_proj", "shortconv.in_proj"},
                          {"conv.conv", "shortconv.conv"},
                          {"conv.out_proj", "shortconv.out_proj"}};
const Names kNemotronHNames = {{"norm", "attn_norm"},
                               {"mixer.q_proj", "attn_q"},
                               {"mixer.k_proj", "attn_k"},
                               {"mixer.v_proj", "attn_v"},
                               {"mixer.o_proj", "attn_output"},
                               {"mixer.up_proj", "ffn_up"},
                               {"mixer.down_proj", "ffn_down"},
                               {"mixer.in_proj", "ssm_in"},
                               {"mixer.conv1d", "ssm_conv1d"},
                               {"mixer.dt_bias", "ssm_dt.bias"},
                               {"mixer.A_log", "ssm_a"},
                               {"mixer.D", "ssm_d"},
                               {"mixer.norm", "ssm_norm"},
                               {"mixer.out_proj", "ssm_out"},
                               {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
                               {"mixer.gate", "ffn_gate_inp"},
                               {"mixer.shared_experts.up_proj", "ffn_up_shexp"},
                               {"mixer.shared_experts.down_proj", "ffn_down_shexp"}};
const Names kGraniteHybridNames = {{"mamba.in_proj", "ssm_in"},
                                   {"mamba.conv1d", "ssm_conv1d"},
                                   {"mamba.dt_bias", "ssm_dt.bias"},
                                   {"mamba.A_log", "ssm_a"},
                                   {"mamba.D", "ssm_d"},
                                   {"mamba.norm", "ssm_norm"},
                                   {"mamba.out_proj", "ssm_out"},
                                   {"block_sparse_moe.router.layer", "ffn_gate_inp"},
                                   {"shared_mlp.gate_proj", "ffn_gate_shexp"},
                                   {"shared_mlp.up_proj", "ffn_up_shexp"},
                                   {"shared_mlp.output_linear", "ffn_down_shexp"}};

std::string GgufName(const GgufFamily& family, const std::string& name) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  if (name == "model.embedding_norm.weight") return "token_embd_norm.weight";
  if (name == "model.embed_tokens_per_layer.weight") return "per_layer_token_embd.weight";
  if (name == "model.per_layer_model_projection.weight") return "per_layer_model_proj.weight";
  if (name == "model.per_layer_projection_norm.weight") return "per_layer_proj_norm.weight";
  constexpr std::string_view kLayers = "model.layers.";
  const size_t dot = name.find('.', kLayers.size());
  const std::string layer = "blk." + name.substr(kLayers.size(), dot - kLayers.size()) + ".";
  const std::string rest = name.substr(dot + 1);
  if (rest == "self_attn.sinks") return layer + "attn_sinks.weight";
  const size_t end = rest.rfind('.');
  for (const Names* names : {&family.names, &kUsualNames}) {
    for (const auto& [ours, theirs] : *names) {
      if (rest == ours) return layer + std::string(theirs);
      if (rest.substr(0, end) == ours) return layer + std::string(theirs) + rest.substr(end);
    }
  }
  ADD_FAILURE() << name << " has no name in GGUF";
  return name;
}

// The rows of each head: halves become neighbours.
std::vector<float> Permuted(const std::vector<float>& values, int64_t heads, int64_t columns) {
  const auto head = static_cast<int64_t>(values.size()) / columns / heads, half = head / 2;
  std::vector<float> out(values.size());
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < head; ++i) {
      const int64_t from = h * head + i % 2 * half + i / 2;
      std::copy_n(values.begin() + from * columns, columns, out.begin() + (h * head + i) * columns);
    }
  }
  return out;
}

// A number of the configuration's text, in `object` where that is given.
std::optional<double> Number(const simdjson::dom::element& config, std::string_view key) {
  double value;
  if (config[key].get(value)) return std::nullopt;
  return value;
}

void AddKeys(const simdjson::dom::element& config, GgufModel* out) {
  const auto whole = [&](std::string_view from, std::string_view to) {
    if (const auto value = Number(config, from)) out->Int(to, static_cast<int64_t>(*value));
  };
  const auto real = [&](std::string_view from, std::string_view to) {
    if (const auto value = Number(config, from)) out->Real(to, *value);
  };
  whole("max_position_embeddings", "context_length");
  whole("hidden_size", "embedding_length");
  whole("num_hidden_layers", "block_count");
  whole("intermediate_size", "feed_forward_length");
  whole("num_attention_heads", "attention.head_count");
  whole("num_key_value_heads", "attention.head_count_kv");
  whole("head_dim", "attention.key_length");
  whole("head_dim", "attention.value_length");
  whole("sliding_window", "attention.sliding_window");
  for (const char* experts : {"num_local_experts", "num_experts", "n_routed_experts"})
    whole(experts, "expert_count");
  if (Number(config, "num_local_experts")) whole("intermediate_size", "expert_feed_forward_length");
  whole("moe_intermediate_size", "expert_feed_forward_length");
  whole("num_experts_per_tok", "expert_used_count");
  real("rms_norm_eps", "attention.layer_norm_rms_epsilon");
  real("rope_theta", "rope.freq_base");
  real("attn_logit_softcapping", "attn_logit_softcapping");
  real("final_logit_softcapping", "final_logit_softcapping");
  real("embedding_multiplier", "embedding_scale");
  real("attention_multiplier", "attention.scale");
  real("residual_multiplier", "residual_scale");
  real("logits_scaling", "logit_scale");
  const double heads = Number(config, "num_attention_heads").value();
  const double head_dim =
      Number(config, "head_dim").value_or(Number(config, "hidden_size").value() / heads);
  if (const auto part = Number(config, "partial_rotary_factor"))
    out->Int("rope.dimension_count", static_cast<int64_t>(*part * head_dim));
}

void AddScaling(const simdjson::dom::element& config, GgufModel* out) {
  simdjson::dom::object scaling;
  if (config["rope_scaling"].get(scaling) && config["rope_parameters"].get(scaling)) return;
  std::string_view type;
  if (scaling["rope_type"].get(type) && scaling["type"].get(type)) return;
  if (type == "yarn") {
    out->String("rope.scaling.type", "yarn");
    out->Real("rope.scaling.factor", double(scaling["factor"]));
    out->Int("rope.scaling.original_context_length",
             int64_t(scaling["original_max_position_embeddings"]));
    out->Real("rope.scaling.yarn_beta_fast", double(scaling["beta_fast"]));
    out->Real("rope.scaling.yarn_beta_slow", double(scaling["beta_slow"]));
  } else if (type == "longrope") {
    const double original = Number(config, "original_max_position_embeddings").value();
    const double scale = Number(config, "max_position_embeddings").value() / original;
    out->Int("rope.scaling.original_context_length", static_cast<int64_t>(original));
    out->Real("rope.scaling.attn_factor", std::sqrt(1 + std::log(scale) / std::log(original)));
    for (const char* length : {"long", "short"}) {
      std::vector<float> factors;
      for (const auto factor : scaling[std::string(length) + "_factor"])
        factors.push_back(static_cast<float>(double(factor)));
      const std::string name = std::string("rope_factors_") + length + ".weight";
      out->Tensor(name, {std::ssize(factors)}, factors);
    }
  }
}

// "model.layers.N.mlp.experts.E.up_proj.weight": what it is called, and which expert's it is.
struct ExpertName {
  std::string stack;  // "blk.N.ffn_up_exps.weight"
  int64_t expert;
};
std::optional<ExpertName> ParseExpert(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.find(kExperts);
  int layer = 0, expert = 0;
  char matrix[16], kind[16];
  if (at == std::string::npos || std::sscanf(name.c_str(), "model.layers.%d.", &layer) != 1 ||
      std::sscanf(name.c_str() + at + kExperts.size(), "%d.%15[a-z0-9_].%15s", &expert, matrix,
                  kind) != 3)
    return std::nullopt;
  static const std::map<std::string, std::string> kMatrices = {
      {"gate_proj", "gate"}, {"up_proj", "up"}, {"down_proj", "down"},
      {"w1", "gate"},        {"w3", "up"},      {"w2", "down"}};
  return ExpertName{fmt::format("blk.{}.ffn_{}_exps.{}", layer, kMatrices.at(matrix), kind),
                    expert};
}

// Heads by kind of layer, as llama.cpp's converter writes flags for windows.
void AddWindows(const Config& config, GgufModel* out) {
  std::vector<int64_t> windowed;
  for (const auto type : config["layer_types"])
    windowed.push_back(std::string_view(type) == "sliding_attention");
  out->Ints("attention.sliding_window_pattern", windowed);
}

void AddGemma4Keys(const Config& config, GgufModel* out) {
  AddWindows(config, out);
  const auto readers = static_cast<int64_t>(*Number(config, "num_kv_shared_layers"));
  const auto width = static_cast<int64_t>(*Number(config, "intermediate_size"));
  const bool wide = bool(config["use_double_wide_mlp"]);
  std::vector<int64_t> widths, kv_heads;
  for (const auto type : config["layer_types"]) {
    const bool full = std::string_view(type) == "full_attention";
    kv_heads.push_back(static_cast<int64_t>(*Number(
        config, full && Number(config, "num_global_key_value_heads") ? "num_global_key_value_heads"
                                                                     : "num_key_value_heads")));
  }
  const auto layers = static_cast<int64_t>(kv_heads.size());
  for (int64_t layer = 0; layer < layers; ++layer)
    widths.push_back(wide && layer >= layers - readers ? 2 * width : width);
  if (wide) {
    out->Ints("feed_forward_length", widths);
  } else {
    out->Int("feed_forward_length", width);
  }
  out->Ints("attention.head_count_kv", kv_heads);
  out->Int("attention.shared_kv_layers", readers);
  out->Int("embedding_length_per_layer_input",
           static_cast<int64_t>(*Number(config, "hidden_size_per_layer_input")));
  const auto head = static_cast<int64_t>(*Number(config, "head_dim")),
             full_head = static_cast<int64_t>(*Number(config, "global_head_dim"));
  for (const char* key :
       {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
    out->Int(key, full_head);
    out->Int(std::string(key) + "_swa", head);
  }
  if (const auto chosen = Number(config, "top_k_experts"))
    out->Int("expert_used_count", static_cast<int64_t>(*chosen));
  const auto ropes = config["rope_parameters"];
  out->Real("rope.freq_base", double(ropes["full_attention"]["rope_theta"]));
  out->Real("rope.freq_base_swa", double(ropes["sliding_attention"]["rope_theta"]));
  const auto turned = static_cast<size_t>(double(ropes["full_attention"]["partial_rotary_factor"]) *
                                          static_cast<double>(full_head) / 2);
  std::vector<float> divisors(static_cast<size_t>(full_head / 2), 1e30f);
  std::fill_n(divisors.begin(), turned, 1.0f);
  out->Tensor("rope_freqs.weight", {full_head / 2}, divisors);
}

void AddDeepseekKeys(const Config& config, GgufModel* out) {
  const auto copy = [&](const char* from, const char* to) {
    out->Int(to, static_cast<int64_t>(*Number(config, from)));
  };
  copy("n_shared_experts", "expert_shared_count");
  copy("n_group", "expert_group_count");
  copy("topk_group", "expert_group_used_count");
  copy("first_k_dense_replace", "leading_dense_block_count");
  out->Real("expert_weights_scale", *Number(config, "routed_scaling_factor"));
  if (bool(config["norm_topk_prob"])) out->Bool("expert_weights_norm", true);
  std::string_view scores;
  if (config["scoring_func"].get(scores)) scores = "sigmoid";
  out->Int("expert_gating_func", scores == "sigmoid" ? 2 : 1);
}

// Sizes of heads as they are, and keys and values in one matrix.
void AddOlderLatentKeys(const Config& config, GgufModel* out) {
  AddDeepseekKeys(config, out);
  const auto number = [&](const char* key) {
    return static_cast<int64_t>(Number(config, key).value_or(0));
  };
  const int64_t turned = number("qk_rope_head_dim");
  out->Int("attention.kv_lora_rank", number("kv_lora_rank"));
  if (number("q_lora_rank") > 0) out->Int("attention.q_lora_rank", number("q_lora_rank"));
  out->Int("rope.dimension_count", turned);
  out->Int("attention.key_length", number("qk_nope_head_dim") + turned);
  out->Int("attention.value_length", number("v_head_dim"));
  simdjson::dom::object scaling;
  if (!config["rope_scaling"].get(scaling)) {
    out->Real("rope.scaling.yarn_log_multiplier", double(scaling["mscale_all_dim"]) / 10);
  }
}

// Those of the absorbed form: one head of the latent for all.
void AddLatentKeys(const Config& config, GgufModel* out) {
  AddOlderLatentKeys(config, out);
  const auto number = [&](const char* key) { return static_cast<int64_t>(*Number(config, key)); };
  const int64_t turned = number("qk_rope_head_dim"), rank = number("kv_lora_rank");
  out->Int("attention.head_count_kv", 1);
  out->Int("attention.key_length", rank + turned);
  out->Int("attention.value_length", rank);
  out->Int("attention.key_length_mla", number("qk_nope_head_dim") + turned);
  out->Int("attention.value_length_mla", number("v_head_dim"));
}

// Keys, transposed by head, and values apart.
std::vector<Stored> SplitLatent(const Config& config, Stored tensor) {
  constexpr std::string_view kJoined = "kv_b_proj.weight";
  if (!tensor.name.ends_with(kJoined)) return {tensor};
  const auto number = [&](const char* key) { return static_cast<int64_t>(*Number(config, key)); };
  const int64_t heads = number("num_attention_heads"), key = number("qk_nope_head_dim"),
                value = number("v_head_dim"), rank = tensor.shape[1];
  std::vector<float> keys, values;
  for (int64_t head = 0; head < heads; ++head) {
    const auto from = tensor.values.begin() + head * (key + value) * rank;
    for (int64_t i = 0; i < rank; ++i) {
      for (int64_t row = 0; row < key; ++row) keys.push_back(from[row * rank + i]);
    }
    values.insert(values.end(), from + key * rank, from + (key + value) * rank);
  }
  const std::string prefix = tensor.name.substr(0, tensor.name.size() - kJoined.size());
  return {{prefix + "k_b_proj.weight", {heads, rank, key}, keys},
          {prefix + "v_b_proj.weight", {heads, value, rank}, values}};
}

void AddDeltaNetKeys(const Config& config, GgufModel* out) {
  const auto number = [&](const char* key) { return static_cast<int64_t>(*Number(config, key)); };
  out->Int("ssm.conv_kernel", number("linear_conv_kernel_dim"));
  out->Int("ssm.state_size", number("linear_key_head_dim"));
  out->Int("ssm.group_count", number("linear_num_key_heads"));
  out->Int("ssm.time_step_rank", number("linear_num_value_heads"));
  out->Int("ssm.inner_size", number("linear_value_head_dim") * number("linear_num_value_heads"));
  out->Int("full_attention_interval", number("full_attention_interval"));
  if (Number(config, "shared_expert_intermediate_size"))
    out->Int("expert_shared_feed_forward_length", number("shared_expert_intermediate_size"));
  const auto rope = config["rope_parameters"];
  out->Real("rope.freq_base", double(rope["rope_theta"]));
  out->Int("rope.dimension_count", static_cast<int64_t>(double(rope["partial_rotary_factor"]) *
                                                        *Number(config, "head_dim")));
  out->Ints("rope.dimension_sections", {2, 1, 1, 0});
}

// Value heads, which lie behind `first` rows, by their number within a key head.
std::vector<float> Tiled(const std::vector<float>& values, const Config& config, int64_t first,
                         int64_t head, int64_t columns) {
  const auto keys = static_cast<int64_t>(*Number(config, "linear_num_key_heads")),
             each = static_cast<int64_t>(*Number(config, "linear_num_value_heads")) / keys;
  std::vector<float> out = values;
  for (int64_t key = 0; key < keys; ++key) {
    for (int64_t value = 0; value < each; ++value) {
      std::copy_n(values.begin() + (first + (key * each + value) * head) * columns, head * columns,
                  out.begin() + (first + (value * keys + key) * head) * columns);
    }
  }
  return out;
}

// A_log as -e^A_log, no middle extent of the convolution.
std::vector<Stored> ConvertDeltaNet(const Config&, Stored tensor) {
  if (tensor.name.ends_with(".A_log")) {
    for (float& value : tensor.values) value = -static_cast<float>(std::exp(double{value}));
  }
  if (tensor.shape.size() == 3) tensor.shape = {tensor.shape[0], tensor.shape[2]};
  return {tensor};
}

std::vector<Stored> ConvertQwen35(const Config& config, Stored tensor) {
  const auto number = [&](const char* key) { return static_cast<int64_t>(*Number(config, key)); };
  const int64_t keys = 2 * number("linear_num_key_heads") * number("linear_key_head_dim"),
                dim = number("linear_value_head_dim");
  const size_t at = tensor.name.find(".linear_attn.");
  if (at == std::string::npos) return {tensor};
  const std::string part = tensor.name.substr(at + 13);
  if (part == "in_proj_qkv.weight" || part == "conv1d.weight") {
    tensor.values = Tiled(tensor.values, config, keys, dim, tensor.shape.back());
  } else if (part == "in_proj_z.weight") {
    tensor.values = Tiled(tensor.values, config, 0, dim, tensor.shape[1]);
  } else if (part == "in_proj_a.weight" || part == "in_proj_b.weight") {
    tensor.values = Tiled(tensor.values, config, 0, 1, tensor.shape[1]);
  } else if (part == "A_log" || part == "dt_bias") {
    tensor.values = Tiled(tensor.values, config, 0, 1, 1);
  } else if (part == "out_proj.weight") {  // columns
    const int64_t columns = tensor.shape[1];
    for (int64_t row = 0; row < tensor.shape[0]; ++row) {
      const auto begin = tensor.values.begin() + row * columns;
      const std::vector<float> tiled = Tiled({begin, begin + columns}, config, 0, dim, 1);
      std::ranges::copy(tiled, begin);
    }
  }
  return ConvertDeltaNet(config, tensor);
}

// in_proj_qkvz, which has q, k, v, z by key head: q, k, v of all heads, and z.
std::vector<Stored> ConvertQwen3Next(const Config& config, Stored tensor) {
  constexpr std::string_view kJoined = "in_proj_qkvz.weight";
  if (!tensor.name.ends_with(kJoined)) return ConvertDeltaNet(config, tensor);
  const auto number = [&](const char* key) { return static_cast<int64_t>(*Number(config, key)); };
  const int64_t heads = number("linear_num_key_heads"), key = number("linear_key_head_dim"),
                value = number("linear_value_head_dim") * number("linear_num_value_heads") / heads,
                columns = tensor.shape[1], group = 2 * key + 2 * value;
  std::vector<float> qkv, z;
  const auto append = [&](int64_t first, int64_t rows, std::vector<float>* to) {
    for (int64_t head = 0; head < heads; ++head) {
      const auto from = tensor.values.begin() + (head * group + first) * columns;
      to->insert(to->end(), from, from + rows * columns);
    }
  };
  append(0, key, &qkv);
  append(key, key, &qkv);
  append(2 * key, value, &qkv);
  append(2 * key + value, value, &z);
  const std::string prefix = tensor.name.substr(0, tensor.name.size() - kJoined.size());
  return {{prefix + "in_proj_qkv.weight", {heads * (2 * key + value), columns}, qkv},
          {prefix + "in_proj_z.weight", {heads * value, columns}, z}};
}

void AddKvHeadsByLayer(const Config& config, std::string_view attention, GgufModel* out) {
  std::vector<int64_t> heads;
  for (const auto type : config["layer_types"]) {
    const bool attends = std::string_view(type) == attention;
    heads.push_back(attends ? static_cast<int64_t>(*Number(config, "num_key_value_heads")) : 0);
  }
  out->Ints("attention.head_count_kv", heads);
}

void AddLfm2Keys(const Config& config, GgufModel* out) {
  AddKvHeadsByLayer(config, "full_attention", out);
  out->Int("shortconv.l_cache", static_cast<int64_t>(*Number(config, "conv_L_cache")));
  out->Int("vocab_size", static_cast<int64_t>(*Number(config, "vocab_size")));
}

struct Mamba2Sizes {
  int64_t heads, head_dim, state, groups, taps;
};
Mamba2Sizes Mamba2SizesOf(const Config& config) {
  const auto number = [&](const char* key, const char* other) {
    const auto value = Number(config, key);
    return static_cast<int64_t>(value ? *value : *Number(config, other));
  };
  return {number("mamba_n_heads", "mamba_num_heads"), number("mamba_d_head", "mamba_head_dim"),
          number("mamba_d_state", "ssm_state_size"), number("mamba_n_groups", "n_groups"),
          number("mamba_d_conv", "conv_kernel")};
}

void AddMamba2Keys(const Config& config, GgufModel* out) {
  const Mamba2Sizes sizes = Mamba2SizesOf(config);
  out->Int("ssm.conv_kernel", sizes.taps);
  out->Int("ssm.state_size", sizes.state);
  out->Int("ssm.group_count", sizes.groups);
  out->Int("ssm.inner_size", sizes.heads * sizes.head_dim);
  out->Int("ssm.time_step_rank", sizes.heads);
  out->Int("vocab_size", static_cast<int64_t>(*Number(config, "vocab_size")));
  out->Int("context_length", 1 << 20);
  out->Bool("rope.scaling.finetuned", false);
  out->Int("rope.dimension_count", static_cast<int64_t>(*Number(config, "hidden_size") /
                                                        *Number(config, "num_attention_heads")));
}

void AddNemotronHKeys(const Config& config, GgufModel* out) {
  AddMamba2Keys(config, out);
  std::vector<int64_t> heads, widths;
  for (const char block : std::string_view(config["hybrid_override_pattern"])) {
    const auto where = [&](char wanted, const char* key) {
      return block == wanted ? static_cast<int64_t>(*Number(config, key)) : 0;
    };
    heads.push_back(where('*', "num_key_value_heads"));
    widths.push_back(where('-', "intermediate_size"));
  }
  out->Ints("attention.head_count_kv", heads);
  out->Ints("feed_forward_length", widths);
  out->Real("attention.layer_norm_epsilon", *Number(config, "layer_norm_epsilon"));
}

// What is said of a block in which a further token is predicted stands behind the others.
void AddNemotronHMoeKeys(const Config& config, GgufModel* out) {
  AddMamba2Keys(config, out);
  const auto number = [&](const char* key) { return static_cast<int64_t>(*Number(config, key)); };
  const int64_t kv_heads = number("num_key_value_heads"), width = number("moe_intermediate_size");
  std::vector<int64_t> heads, widths;
  for (const char block : std::string_view(config["hybrid_override_pattern"])) {
    heads.push_back(block == '*' ? kv_heads : 0);
    widths.push_back(block == 'E' ? width : 0);
  }
  heads.push_back(kv_heads);
  widths.push_back(width);
  out->Ints("attention.head_count_kv", heads);
  out->Ints("feed_forward_length", widths);
  out->Int("block_count", std::ssize(heads));
  out->Int("nextn_predict_layers", 1);
  out->Int("expert_shared_count", number("n_shared_experts"));
  out->Int("expert_shared_feed_forward_length", number("moe_shared_expert_intermediate_size"));
  out->Int("expert_group_count", number("n_group"));
  out->Int("expert_group_used_count", number("topk_group"));
  out->Bool("expert_weights_norm", bool(config["norm_topk_prob"]));
  out->Real("expert_weights_scale", *Number(config, "routed_scaling_factor"));
  out->Real("attention.layer_norm_epsilon", *Number(config, "layer_norm_epsilon"));
}

// The dense block's 112 columns become three experts of 32 and a shared one of 16.
std::vector<Stored> DeriveNemotronHMoe(Stored tensor) {
  constexpr std::string_view kUp = "layers.1.mixer.up_proj.weight",
                             kDown = "layers.1.mixer.down_proj.weight";
  const bool up = tensor.name.ends_with(kUp);
  if (!up && !tensor.name.ends_with(kDown)) return {tensor};
  constexpr int64_t kExperts = 3, kWidth = 32;
  const std::string mixer = tensor.name.substr(0, tensor.name.find("mixer.") + 6),
                    matrix = up ? "up_proj.weight" : "down_proj.weight";
  const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  std::vector<Stored> derived;
  for (int64_t expert = 0; expert <= kExperts; ++expert) {
    const int64_t begin = expert * kWidth, end = std::min(begin + kWidth, up ? rows : columns);
    Stored part{expert < kExperts ? fmt::format("{}experts.{}.{}", mixer, expert, matrix)
                                  : mixer + "shared_experts." + matrix,
                {up ? end - begin : rows, up ? columns : end - begin},
                {}};
    for (int64_t row = up ? begin : 0; row < (up ? end : rows); ++row) {
      const auto from = tensor.values.begin() + row * columns;
      part.values.insert(part.values.end(), up ? from : from + begin,
                         up ? from + columns : from + end);
    }
    derived.push_back(std::move(part));
  }
  if (!up) return derived;
  derived.push_back({mixer + "gate.weight",
                     {kExperts, columns},
                     {tensor.values.end() - kExperts * columns, tensor.values.end()}});
  derived.push_back({mixer + "gate.e_score_correction_bias", {kExperts}, {0.1f, -0.05f, 0}});
  return derived;
}

void AddGraniteHybridKeys(const Config& config, GgufModel* out) {
  AddMamba2Keys(config, out);
  AddKvHeadsByLayer(config, "attention", out);
  out->Int("expert_shared_feed_forward_length",
           static_cast<int64_t>(*Number(config, "shared_intermediate_size")));
}

// A_log and D of a row a head, the norm of a row a group.
std::vector<Stored> ConvertMamba2(const Config& config, Stored tensor) {
  const int64_t groups = Mamba2SizesOf(config).groups;
  if (tensor.name.ends_with(".A_log") || tensor.name.ends_with(".D")) {
    tensor.shape = {tensor.shape[0], 1};
  } else if (tensor.name.ends_with("mamba.norm.weight") ||
             tensor.name.ends_with("mixer.norm.weight")) {
    tensor.shape = {groups, tensor.shape[0] / groups};
  }
  return ConvertDeltaNet(config, tensor);
}

std::vector<Stored> ConvertNemotronH(const Config& config, Stored tensor) {
  for (const auto& [there, here] : {std::pair{"backbone.embeddings.", "model.embed_tokens."},
                                    {"backbone.norm_f.", "model.norm."},
                                    {"backbone.", "model."}}) {
    if (tensor.name.starts_with(there)) tensor.name.replace(0, std::strlen(there), here);
  }
  return ConvertMamba2(config, tensor);
}

// The shared block's gate and up apart.
std::vector<Stored> ConvertGraniteHybrid(const Config& config, Stored tensor) {
  constexpr std::string_view kJoined = "shared_mlp.input_linear.weight";
  if (!tensor.name.ends_with(kJoined)) return ConvertMamba2(config, tensor);
  const std::string prefix = tensor.name.substr(0, tensor.name.size() - kJoined.size());
  const std::vector<int64_t> shape = {tensor.shape[0] / 2, tensor.shape[1]};
  const auto middle = tensor.values.begin() + shape[0] * shape[1];
  return {{prefix + "shared_mlp.gate_proj.weight", shape, {tensor.values.begin(), middle}},
          {prefix + "shared_mlp.up_proj.weight", shape, {middle, tensor.values.end()}}};
}

struct Stack {
  std::vector<int64_t> shape;  // of an expert
  std::map<int64_t, std::vector<float>> experts;
};

// An expert's up behind its gate.
void FuseGateUp(std::map<std::string, Stack>* stacks) {
  for (int layer = 0; layer < 8; ++layer) {
    const auto taken = [&](const char* matrix) {
      return stacks->extract(fmt::format("blk.{}.ffn_{}_exps.weight", layer, matrix));
    };
    auto gate = taken("gate"), up = taken("up");
    if (gate.empty()) continue;
    gate.key() = fmt::format("blk.{}.ffn_gate_up_exps.weight", layer);
    gate.mapped().shape[0] *= 2;
    for (auto& [expert, values] : gate.mapped().experts) {
      const std::vector<float>& more = up.mapped().experts.at(expert);
      values.insert(values.end(), more.begin(), more.end());
    }
    stacks->insert(std::move(gate));
  }
}

// What a file in Q8_0 holds of a matrix' values.
void Quantise(const std::vector<int64_t>& shape, std::vector<float>* values) {
  if (!GgufModel::Fits(shape)) return;
  for (float& value : *values)
    value = std::clamp(std::round(value / GgufModel::kStep), -127.0f, 127.0f) * GgufModel::kStep;
}

std::vector<int64_t> ExtentsOf(const tensor::Shape& shape) {
  std::vector<int64_t> extents;
  for (int i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
  return extents;
}
tensor::Shape ShapeOf(const std::vector<int64_t>& extents) {
  if (extents.size() == 1) return {extents[0]};
  if (extents.size() == 2) return {extents[0], extents[1]};
  return {extents[0], extents[1], extents[2]};
}

// visit(tensor) for every tensor of the family's folder.
template <typename Visit>
void ForEachOf(const GgufFamily& family, Visit visit) {
  ForEachTensor(family.model, [&](const std::string& name, const tensor::Shape& shape,
                                  const std::vector<float>& values) {
    Stored tensor{name, ExtentsOf(shape), values};
    if (family.derive == nullptr) return visit(std::move(tensor));
    for (Stored& derived : family.derive(std::move(tensor))) visit(std::move(derived));
  });
}

// config.json's text.
std::string ConfigOf(const GgufFamily& family) {
  std::string config = testing_support::ConfigText(family.model);
  for (const auto& [from, to] : family.edits) {
    const size_t at = config.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) config.replace(at, from.size(), to);
  }
  return config;
}

std::string WriteGguf(const GgufFamily& family, std::string_view config_text, bool quantised,
                      GgufModel* out) {
  simdjson::dom::parser parser;
  const Config config = *base::ParseJson(parser, config_text);
  AddKeys(config, out);
  AddScaling(config, out);
  if (family.add_keys != nullptr) family.add_keys(config, out);
  std::map<std::string, Stack> stacks;
  const auto write = [&](Stored tensor) {
    if (const auto expert = ParseExpert(tensor.name)) {
      Stack& stack = stacks[expert->stack];
      stack.shape = tensor.shape;
      stack.experts[expert->expert] = std::move(tensor.values);
      return;
    }
    if (family.plus_one && tensor.name.ends_with("norm.weight") &&
        !tensor.name.ends_with("linear_attn.norm.weight")) {
      for (float& value : tensor.values) value += 1.0f;
    }
    const bool q = tensor.name.ends_with(".q_proj.weight"),
               k = tensor.name.ends_with(".k_proj.weight");
    if (family.permuted && (q || k)) {
      const double heads =
          Number(config, q ? "num_attention_heads" : "num_key_value_heads").value();
      tensor.values = Permuted(tensor.values, static_cast<int64_t>(heads), tensor.shape[1]);
    }
    out->Tensor(GgufName(family, tensor.name), tensor.shape, tensor.values);
  };
  ForEachOf(family, [&](Stored tensor) {
    int layer = 0;  // those that predict further tokens are left out
    if (std::sscanf(tensor.name.c_str(), "model.layers.%d.", &layer) == 1 &&
        layer >= *Number(config, "num_hidden_layers"))
      return;
    if (quantised) Quantise(tensor.shape, &tensor.values);
    if (family.convert == nullptr) return write(std::move(tensor));
    for (Stored& converted : family.convert(config, std::move(tensor))) write(std::move(converted));
  });
  if (family.fused_experts) FuseGateUp(&stacks);
  for (auto& [name, stack] : stacks) {
    std::vector<int64_t> shape = {std::ssize(stack.experts)};
    shape.insert(shape.end(), stack.shape.begin(), stack.shape.end());
    std::vector<float> all;
    for (const auto& [expert, values] : stack.experts)
      all.insert(all.end(), values.begin(), values.end());
    out->Tensor(name, shape, all);
  }
  return out->Write();
}

void ExpectSameAnswers(const GgufFamily& family, bool quantised,
                       std::initializer_list<tensor::DType> dtypes) {
  const std::string config = ConfigOf(family);
  testing_support::Folder folder;
  ForEachOf(family, [&](Stored tensor) {
    if (tensor.name.ends_with(".A_log")) {  // as far as fp32 holds its power
      for (float& value : tensor.values)
        value = static_cast<float>(std::log(double{static_cast<float>(std::exp(double{value}))}));
    }
    if (quantised) Quantise(tensor.shape, &tensor.values);
    folder.AddF32(tensor.name, ShapeOf(tensor.shape), tensor.values);
  });
  const std::string written = folder.Write(config);
  GgufModel gguf(family.architecture, quantised);
  const std::string file = WriteGguf(family, config, quantised, &gguf);
  constexpr int32_t kLeastVocabulary = 128;  // DeepSeek V2's
  for (const tensor::DType dtype : dtypes) {
    const auto expected = testing_support::AnswersOf(written, dtype, {}, kLeastVocabulary);
    EXPECT_NE(expected[0].second, 0u);
    EXPECT_EQ(testing_support::AnswersOf(file, dtype, {}, kLeastVocabulary), expected);
  }
}

class GgufFamilies : public testing::TestWithParam<GgufFamily> {};

TEST_P(GgufFamilies, FileAndFolderAnswerAlike) {
  ExpectSameAnswers(GetParam(), false, {tensor::DType::kF32, tensor::DType::kBF16});
}

TEST_P(GgufFamilies, QuantisedMatricesAnswerAlike) {
  ExpectSameAnswers(GetParam(), true, {tensor::DType::kBF16});
}

const std::vector<GgufFamily> kHybrids = {{.model = "lfm2",
                                           .architecture = "lfm2",
                                           .names = kLfm2Names,
                                           .add_keys = &AddLfm2Keys,
                                           .convert = &ConvertDeltaNet},
                                          {.model = "nemotron-h",
                                           .architecture = "nemotron_h",
                                           .names = kNemotronHNames,
                                           .permuted = true,
                                           .add_keys = &AddNemotronHKeys,
                                           .convert = &ConvertNemotronH},
                                          {.model = "granite4-hybrid",
                                           .architecture = "granitehybrid",
                                           .names = kGraniteHybridNames,
                                           .permuted = true,
                                           .add_keys = &AddGraniteHybridKeys,
                                           .convert = &ConvertGraniteHybrid}};

// Nemotron 3 Nano.
const GgufFamily kNemotronHMoe{
    .model = "nemotron-h",
    .architecture = "nemotron_h_moe",
    .names = kNemotronHNames,
    .permuted = true,
    .add_keys = &AddNemotronHMoeKeys,
    .convert = &ConvertNemotronH,
    .edits = {{"\"M-*M\"",
               R"("ME*M", "n_routed_experts": 3, "num_experts_per_tok": 2, "n_shared_experts": 1,
 "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 16, "n_group": 1,
 "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5)"}},
    .derive = &DeriveNemotronHMoe};

// Nemotron 3 Super's experts read a projection of the row.
TEST(GgufHybrids, LatentExpertsAreRefused) {
  GgufModel gguf(kNemotronHMoe.architecture);
  gguf.Int("moe_latent_size", 16);
  const base::Status status =
      engine::OpenModel(WriteGguf(kNemotronHMoe, ConfigOf(kNemotronHMoe), false, &gguf), false, 0)
          .status();
  EXPECT_EQ(status.code(), model::kConfigUnsupported);
  EXPECT_NE(status.message().find("moe_latent_size"), std::string::npos) << status.message();
}

// Tensors that hybrid models alone have.
TEST(GgufHybrids, AMissingTensorIsNamed) {
  constexpr std::pair<const char*, const char*> kLeftOut[] = {
      {"blk.0.shortconv.conv.weight", "model.layers.0.conv.conv.weight"},
      {"blk.3.ssm_d", "model.layers.3.mixer.D"},
      {"blk.1.ffn_up_shexp.weight", "model.layers.1.shared_mlp.up_proj.weight"}};
  for (size_t i = 0; i < kHybrids.size(); ++i) {
    GgufModel gguf(kHybrids[i].architecture);
    gguf.LeaveOut(kLeftOut[i].first);
    const auto files = engine::OpenModel(
        WriteGguf(kHybrids[i], testing_support::ConfigText(kHybrids[i].model), false, &gguf), false,
        0);
    ASSERT_TRUE(files.ok()) << files.status().ToString();
    const auto runtime = runtime::CreateRealRuntime();
    layout::EngineOptions options;
    options.machine.memory_bytes = 256 << 20;
    options.limits.max_model_len = 256;
    const auto engine = choose::CreateEngine(*runtime, options, *files, nullptr);
    EXPECT_EQ(engine.status().code(), weights::kTensorMissing);
    EXPECT_NE(
        engine.status().message().find(fmt::format("tensor {} is missing", kLeftOut[i].second)),
        std::string::npos)
        << engine.status().ToString();
  }
}

// Those whose models are committed, or lie where FOREBAY_GOLDEN says.
std::vector<GgufFamily> PresentFamilies() {
  constexpr std::pair<std::string_view, std::string_view> kEveryOther = {
      "\"full_attention_interval\": 4", "\"full_attention_interval\": 2"};
  std::vector<GgufFamily> families = {
      {.model = "gemma2",
       .architecture = "gemma2",
       .names = kSandwich,
       .plus_one = true,
       .edits = {{"\"query_pre_attn_scalar\": 48", "\"query_pre_attn_scalar\": 16"}}},
      {"gemma3", "gemma3", kSandwich, true},
      {"phi3", "phi3", {}},
      {"phi4-mini", "phi3", {}},
      {"glm4",
       "glm4",
       {{"post_self_attn_layernorm", "post_attention_norm"},
        {"post_mlp_layernorm", "post_ffw_norm"}}},
      {"granite", "granite", {}, false, true},
      {"gpt-oss", "gpt-oss", {{"post_attention_layernorm", "post_attention_norm"}}},
      {"olmo2", "olmo2", kSandwich},
      {"smollm3", "smollm3", {}, false, true},
      {"seed-oss", "seed_oss", {}},
      {.model = "exaone4", .architecture = "exaone4", .names = kSandwich, .add_keys = &AddWindows},
      {.model = "olmo3", .architecture = "olmo2", .names = kSandwich, .add_keys = &AddWindows},
      {"ernie4.5", "ernie4_5", {}},
      {"hunyuan",
       "hunyuan-dense",
       {{"self_attn.query_layernorm", "attn_q_norm"}, {"self_attn.key_layernorm", "attn_k_norm"}}},
      {.model = "ministral3",
       .architecture = "mistral3",
       .names = {},
       .permuted = true,
       .add_keys =
           [](const Config& config, GgufModel* out) {
             const auto rope = config["rope_parameters"];
             out->Real("rope.freq_base", double(rope["rope_theta"]));
             out->Real("rope.scaling.yarn_log_multiplier", double(rope["mscale_all_dim"]));
             out->Real("attention.temperature_scale", double(rope["llama_4_scaling_beta"]));
           }},
      {"qwen3-moe", "qwen3moe", {}},
      {.model = "minimax-m2",
       .architecture = "minimax-m2",
       .names = {{"block_sparse_moe.gate", "ffn_gate_inp"},
                 {"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"}},
       .add_keys =
           [](const Config& config, GgufModel* out) {
             out->Int("rope.dimension_count", static_cast<int64_t>(*Number(config, "rotary_dim")));
             out->Int("expert_gating_func", 2);
           }},
      {.model = "glm4-moe",
       .architecture = "glm4moe",
       .names = {{"post_attention_layernorm", "post_attention_norm"}},
       .add_keys = &AddDeepseekKeys},
      {.model = "deepseek-v3",
       .architecture = "deepseek2",
       .names = kDeepseekNames,
       .add_keys = &AddLatentKeys,
       .convert = &SplitLatent},
      {.model = "deepseek-v2",
       .architecture = "deepseek2",
       .names = kDeepseekNames,
       .add_keys = &AddLatentKeys,
       .convert = &SplitLatent},
      {.model = "deepseek-v2-lite",
       .architecture = "deepseek2",
       .names = kDeepseekNames,
       .add_keys = &AddOlderLatentKeys},
      {.model = "glm4-moe-lite",
       .architecture = "deepseek2",
       .names = kDeepseekNames,
       .add_keys = &AddLatentKeys,
       .convert = &SplitLatent},
      {.model = "llama4-text",
       .architecture = "llama4",
       .names = {{"feed_forward.gate_proj", "ffn_gate"},
                 {"feed_forward.up_proj", "ffn_up"},
                 {"feed_forward.down_proj", "ffn_down"},
                 {"feed_forward.router", "ffn_gate_inp"},
                 {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
                 {"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
                 {"feed_forward.shared_expert.down_proj", "ffn_down_shexp"}},
       .add_keys =
           [](const Config& config, GgufModel* out) {
             out->Int("feed_forward_length",
                      static_cast<int64_t>(*Number(config, "intermediate_size_mlp")));
             out->Int("interleave_moe_layer_step",
                      static_cast<int64_t>(*Number(config, "interleave_moe_layer_step")));
           },
       .edits = {{"\"attention_chunk_size\": 32", "\"attention_chunk_size\": 8192"},
                 {"\"floor_scale\": 48", "\"floor_scale\": 8192"},
                 {"\"attn_scale\": 0.5", "\"attn_scale\": 0.1"}}},
      {"gemma4-e", "gemma4", kGemma4Names, false, false, &AddGemma4Keys},
      {.model = "gemma4-moe",
       .architecture = "gemma4",
       .names = kGemma4Names,
       .add_keys = &AddGemma4Keys,
       .fused_experts = true},
      {"qwen3.5", "qwen35", kQwen35Names, true, false, &AddDeltaNetKeys, &ConvertQwen35},
      {.model = "qwen3.5-moe",
       .architecture = "qwen35moe",
       .names = kQwen35Names,
       .plus_one = true,
       .add_keys = &AddDeltaNetKeys,
       .convert = &ConvertQwen35,
       .edits = {kEveryOther}},
      {.model = "qwen3-next",
       .architecture = "qwen3next",
       .names = kQwen35Names,
       .plus_one = true,
       .add_keys = &AddDeltaNetKeys,
       .convert = &ConvertQwen3Next,
       .edits = {kEveryOther}},
  };
  families.insert(families.end(), kHybrids.begin(), kHybrids.end());
  families.push_back(kNemotronHMoe);
  std::erase_if(families, [](const GgufFamily& family) {
    return !std::filesystem::exists(golden::Path(std::string("models/") + family.model));
  });
  return families;
}

INSTANTIATE_TEST_SUITE_P(Models, GgufFamilies, testing::ValuesIn(PresentFamilies()),
                         [](const testing::TestParamInfo<GgufFamily>& info) {
                           std::string name = info.param.model;
                           if (info.param.derive != nullptr) name += "-experts";
                           std::ranges::replace(name, '-', '_');
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace forebay
