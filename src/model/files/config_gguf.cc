// ModelConfig from GGUF metadata.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "model/family.h"
#include "model/files/config_reader.h"
#include "model/files/gguf_as_json.h"
#include "model/files/gguf_fields.h"
#include "model/rope.h"
#include "weights/formats/dequantize.h"

namespace forebay::model {
namespace {

using base::Result;
using base::Status;
using weights::GgufFile;
using weights::TensorInfo;

// As llama.cpp runs these: softmax, and weights that are renormalised. All layers have experts.
void ReadExperts(GgufFields* in, ModelConfig* config) {
  const int64_t experts = in->Int("expert_count", 0, kMostExperts, 0);
  if (experts == 0) return;
  MoeConfig moe;
  moe.num_experts = experts;
  moe.experts_per_token = in->Int("expert_used_count", 1, kMostExperts);
  moe.intermediate_size =
      in->Int("expert_feed_forward_length", 1, kMostWidth, config->intermediate_size);
  moe.renormalize = true;
  moe.has_experts.assign(config->num_layers, 1);
  config->moe = std::move(moe);
  if (config->family == "llama") config->family = "mixtral";
  if (config->family != "mixtral" && config->family != "qwen3_moe")
    in->Unsupported("expert_count", "given", "experts of the architectures qwen3moe and llama");
}

void ReadSizes(GgufFields* in, const GgufFile& gguf, ModelConfig* config) {
  config->hidden_size = in->Int("embedding_length", 1, kMostWidth);
  config->intermediate_size = in->Int("feed_forward_length", 1, kMostWidth);
  config->num_layers = in->Int("block_count", 1, kMostLayers);
  config->num_heads = in->Int("attention.head_count", 1, kMostHeads);
  config->num_kv_heads = in->Int("attention.head_count_kv", 1, kMostHeads, config->num_heads);
  config->head_dim =
      in->Int("attention.key_length", 1, kMostHeadDim, config->hidden_size / config->num_heads);
  const int64_t value_length = in->Int("attention.value_length", 1, kMostHeadDim, config->head_dim);
  if (value_length != config->head_dim) {
    in->Unsupported("attention.value_length", fmt::format("{}", value_length),
                    "the same as attention.key_length");
  }
  config->max_position_embeddings = in->Int("context_length", 1, kMostPositions);
  config->rms_norm_eps = in->Float("attention.layer_norm_rms_epsilon", 0, 1);
  const TensorInfo* embedding = FindTensor(gguf, "token_embd.weight");
  if (embedding == nullptr) {
    in->Invalid(fmt::format("tensor token_embd.weight is missing; expected [vocabulary, {}]",
                            config->hidden_size));
  } else {
    config->vocab_size = embedding->rows();
  }
  ReadExperts(in, config);
}

void ReadFeatures(GgufFields* in, const GgufFile& gguf, const ConfigRules& rules,
                  ModelConfig* config) {
  const auto has = [&](std::string_view name) { return FindTensor(gguf, name) != nullptr; };
  config->tie_word_embeddings = !has("output.weight");
  config->attention_bias = has("blk.0.attn_q.bias");
  config->attention_out_bias = has("blk.0.attn_output.bias");
  config->mlp_bias = has("blk.0.ffn_up.bias");
  config->qk_norm = rules.qk_norm;
  // Qwen's files may name a window that their layers do not use; llama.cpp ignores it too.
  const bool windowed = rules.window != WindowRule::kUpperLayers;
  const int64_t window = windowed ? in->Int("attention.sliding_window", 0, kMostPositions, 0) : 0;
  config->sliding_window.assign(config->num_layers, static_cast<int32_t>(window));
}

// rope_freqs.weight [pairs of elements that rope turns] F32: what each frequency is divided by.
void DivideFrequencies(GgufFields* in, const TensorInfo& divisors, double theta,
                       ModelConfig* config) {
  const std::vector<float> values = ReadFactors(divisors, config->RotaryDim() / 2, in);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || values[i] <= 0) {
      return in->Invalid(fmt::format(
          "tensor rope_freqs.weight: element {} is {}; expected a positive number", i, values[i]));
    }
    config->rope.inv_freq[i] = static_cast<float>(
        RopeFrequency(theta, static_cast<int64_t>(i), config->RotaryDim()) / values[i]);
  }
}

void ReadRope(GgufFields* in, const GgufFile& gguf, ModelConfig* config) {
  constexpr double kLeast = 1e-12, kMost = 1e6;
  RopeParameters rope;
  rope.theta = in->Float("rope.freq_base", 2, 1e15, rope.theta);
  const int64_t rotated = in->Int("rope.dimension_count", 1, kMostHeadDim, config->head_dim);
  if (rotated != config->head_dim) {
    in->Unsupported("rope.dimension_count", fmt::format("{}", rotated),
                    fmt::format("the head's {}", config->head_dim));
  }
  // Older files have another key for the factor, and files without a type scale linearly.
  const char* factor = "rope.scaling.factor";
  if (!in->Has(factor) && in->Has("rope.scale_linear")) factor = "rope.scale_linear";
  const bool scaled = in->Has(factor) && in->Float(factor, 0, kMost) != 0;  // 0: not at all
  const std::string type = in->String("rope.scaling.type", scaled ? "linear" : "none");
  if (scaled && (type == "linear" || type == "yarn")) {
    rope.scaling = type == "linear" ? RopeScaling::kLinear : RopeScaling::kYarn;
    rope.factor = in->Float(factor, kLeast, kMost);
    rope.original_max_position_embeddings =
        static_cast<double>(in->Int("rope.scaling.original_context_length", 1, kMostPositions,
                                    config->max_position_embeddings));
    rope.beta_fast = in->Float("rope.scaling.yarn_beta_fast", kLeast, kMost, rope.beta_fast);
    rope.beta_slow = in->Float("rope.scaling.yarn_beta_slow", kLeast, kMost, rope.beta_slow);
  } else if (type == "linear" || type == "yarn") {
    in->Invalid(
        fmt::format("key rope.scaling.type is {}, but there is no rope.scaling.factor", type));
  } else if (type != "none") {
    in->Unsupported("rope.scaling.type", type, "none, linear, yarn");
  }
  if (in->Float("rope.scaling.attn_factor", kLeast, kMost, 1.0) != 1) {
    in->Unsupported("rope.scaling.attn_factor", "given", "1");
  }
  if (!in->status().ok()) return;
  config->rope = MakeRope(rope, config->head_dim, config->head_dim);
  config->max_position_embeddings = LengthenedContext(rope, config->max_position_embeddings);
  const TensorInfo* divisors = FindTensor(gguf, "rope_freqs.weight");
  if (divisors == nullptr) return;
  if (type != "none")
    return in->Unsupported("rope.scaling.type", type, "none where there is a rope_freqs.weight");
  DivideFrequencies(in, *divisors, rope.theta, config);
}

// Keys by which other architectures' programs multiply, cap, shift or choose. Each does nothing
// where it has one of the neutral values.
struct GgufLogitKey {
  std::string_view key;
  std::vector<double> neutral;
};

const std::vector<GgufLogitKey>& KeysThatChangeLogits() {
  static const std::vector<GgufLogitKey> keys = {
      {"logit_scale", {0, 1}},
      {"attn_logit_softcapping", {0}},
      {"final_logit_softcapping", {0}},
      {"router_logit_softcapping", {0}},
      {"embedding_scale", {0, 1}},
      {"residual_scale", {0, 1}},
      {"use_parallel_residual", {0}},
      {"nextn_predict_layers", {0}},
      {"leading_dense_block_count", {0}},
      {"expert_shared_count", {0}},
      {"expert_group_count", {0, 1}},
      {"expert_weights_scale", {0, 1}},
      {"expert_weights_norm", {1}},
      {"expert_gating_func", {0, 1}},
      {"attention.scale", {0}},
      {"attention.clamp_kqv", {0}},
      {"attention.max_alibi_bias", {0}},
      {"attention.causal", {1}},
      {"attention.temperature_scale", {0}},
      {"attention.q_lora_rank", {0}},
      {"attention.kv_lora_rank", {0}},
      {"rope.scaling.yarn_log_multiplier", {0}},
  };
  return keys;
}

// What programs that make and run other models keep in the file.
constexpr std::string_view kGgufMeansNothing[] = {
    "vocab_size",         "rope.scaling.finetuned",   "attention.layer_norm_epsilon",
    "tensor_data_layout", "attention.sliding_window", "rope.dimension_sections"};

// Keys that nobody read: refused where they would make another model, and kept for a warning.
void CheckRest(GgufFields* in, ModelConfig* config) {
  const double own_scale = 1 / std::sqrt(static_cast<double>(config->head_dim));
  for (const std::string_view key : in->Rest()) {
    if (std::ranges::count(kGgufMeansNothing, key) > 0) continue;
    const auto& known = KeysThatChangeLogits();
    const auto found = std::ranges::find(known, key, &GgufLogitKey::key);
    const std::optional<double> value = in->Number(key);
    if (found == known.end()) {
      config->unused_keys.push_back(fmt::format("{}.{}", config->architecture, key));
      continue;
    }
    const bool neutral =
        value && (std::ranges::count(found->neutral, *value) > 0 ||
                  (key == "attention.scale" && std::abs(*value - own_scale) < 1e-6));
    if (!neutral) {
      return in->Unsupported(key, value ? fmt::format("{}", *value) : "given",
                             fmt::format("{}", fmt::join(found->neutral, ", ")));
    }
  }
}

// The configuration of a family whose file is read as its folder's config.json.
Result<ModelConfig> ReadAsJson(const GgufFile& gguf, std::string_view architecture,
                               const Family& family, GgufFields* in, std::string_view file) {
  FB_ASSIGN_OR_RETURN(const GgufConfigJson json, GgufAsConfigJson(gguf, family, in));
  FB_ASSIGN_OR_RETURN(ModelConfig config, ParseHfConfig(json.text, file));
  config.norm_sums = std::exchange(config.norm_plus_one, false);
  config.unused_keys.clear();  // CheckRest says what the file has and nobody reads.
  config.architecture = architecture;
  const TensorInfo* const divisors = FindTensor(gguf, "rope_freqs.weight");
  if (divisors == nullptr || json.has_rope_divisors) return config;
  DivideFrequencies(in, *divisors, in->Float("rope.freq_base", 2, 1e15, RopeParameters().theta),
                    &config);
  FB_RETURN_IF_ERROR(in->status());
  return config;
}

// The family of a file's architecture; null: none. OLMo 3 has OLMo 2's name there, and windows.
const Family* GgufFamily(std::string_view architecture, const GgufFile& gguf) {
  const bool windowed = gguf.Has(std::string(architecture) + ".attention.sliding_window");
  const Family* found = nullptr;
  for (const Family* family : Families()) {
    if (std::ranges::count(GgufArchitectures(*family), architecture) == 0) continue;
    if (found == nullptr || (windowed && family->rules.window != WindowRule::kNone)) found = family;
  }
  return found;
}

void ReadTokens(GgufFields* in, ModelConfig* config) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (in->Has("bos_token_id"))
    config->bos_token_id = static_cast<int32_t>(in->Int("bos_token_id", 0, kMost));
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    if (!in->Has(key)) continue;
    const auto id = static_cast<int32_t>(in->Int(key, 0, kMost));
    const auto& ids = config->eos_token_ids;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) config->eos_token_ids.push_back(id);
  }
}

}  // namespace

Result<ModelConfig> ReadGgufConfig(const GgufFile& gguf, std::string_view file) {
  if (const auto type = gguf.GetString("general.type"); type.ok() && *type != "model") {
    return Status(kConfigUnsupported, fmt::format("{}: is of general.type {}; expected a model",
                                                  file, base::Quoted(*type)));
  }
  const auto architecture = gguf.GetString("general.architecture");
  if (!architecture.ok()) return architecture.status().WithContext(file);
  const Family* family = GgufFamily(*architecture, gguf);
  if (family == nullptr) {
    return Status(kArchitectureUnknown,
                  fmt::format("{}: architecture {} is not known; supported: {} "
                              "(docs/formats/models.md)",
                              file, base::Quoted(*architecture), SupportedGgufArchitectures()));
  }
  ModelConfig config;
  config.architecture = *architecture;
  config.family = family->id;
  GgufFields in(gguf, *architecture, file);
  if (family->rules.gguf_implies != nullptr) {
    FB_ASSIGN_OR_RETURN(config, ReadAsJson(gguf, *architecture, *family, &in, file));
  } else {
    ReadSizes(&in, gguf, &config);
    FB_RETURN_IF_ERROR(in.status());
    FB_RETURN_IF_ERROR(ValidateConfig(config, file));
    family = FindFamily(config.family);
    ReadFeatures(&in, gguf, family->rules, &config);
    ReadRope(&in, gguf, &config);
    FB_RETURN_IF_ERROR(in.status());
  }
  GgufFields tokens(gguf, "tokenizer.ggml", file);
  ReadTokens(&tokens, &config);
  FB_RETURN_IF_ERROR(tokens.status());
  CheckRest(&in, &config);
  FB_RETURN_IF_ERROR(in.status());
  const TensorInfo* matrix = FindTensor(gguf, "blk.0.ffn_up.weight");
  if (matrix != nullptr && matrix->type->dtype) config.stored_dtype = *matrix->type->dtype;
  return config;
}

}  // namespace forebay::model
