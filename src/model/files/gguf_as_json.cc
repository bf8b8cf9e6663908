#include "model/files/gguf_as_json.h"

#include <algorithm>

#include "base/json_writer.h"
#include "weights/formats/dequantize.h"

namespace forebay::model {
namespace {

using weights::GgufFile;
using weights::TensorInfo;

constexpr GgufKey kWhole[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
};
constexpr GgufKey kReal[] = {
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"embedding_scale", "embedding_multiplier"},
    {"attention.scale", "attention_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"logit_scale", "logits_scaling"},
};

constexpr double kMostReal = 1e15;
constexpr int64_t kMostWhole = int64_t{1} << 40;

GgufSizes ReadSizes(GgufFields* in) {
  GgufSizes sizes{.layers = in->Int("block_count", 1, kMostLayers),
                  .hidden = in->Int("embedding_length", 1, kMostWidth),
                  .heads = in->Int("attention.head_count", 1, kMostHeads)};
  sizes.head_dim = in->Int("attention.key_length", 1, kMostHeadDim,
                           std::max<int64_t>(1, sizes.hidden / sizes.heads));
  sizes.windowed_theta = in->Has("rope.freq_base_swa");
  sizes.in = in;
  // Layers that predict further tokens are counted, and not loaded.
  const int64_t further = in->Int("nextn_predict_layers", 0, kMostLayers, 0);
  if (further >= sizes.layers) {
    in->Invalid(fmt::format("key nextn_predict_layers is {}; expected fewer than block_count, {}",
                            further, sizes.layers));
  }
  sizes.layers -= further;
  return sizes;
}

void WriteFactors(const TensorInfo& tensor, GgufFields* in, base::JsonWriter* json) {
  json->BeginArray();
  for (const float value : ReadFactors(tensor, 0, in)) json->Float(value);
  json->EndArray();
}

// Rope's scaling; has_parameters: the family says all of rope's.
void WriteScaling(const GgufFile& gguf, const GgufImplied& implied, bool has_parameters,
                  GgufFields* in, base::JsonWriter* json) {
  const TensorInfo* const longer = FindTensor(gguf, "rope_factors_long.weight");
  const TensorInfo* const shorter = FindTensor(gguf, "rope_factors_short.weight");
  const std::string type = in->String("rope.scaling.type", longer != nullptr ? "longrope" : "none");
  if (type == "none") return;
  if (has_parameters) return in->Unsupported("rope.scaling.type", type, "none");
  json->Key("rope_parameters").BeginObject().Key("rope_type").String(type);
  const auto real = [&](const char* key, const char* name) {
    if (in->Has(key)) json->Key(name).Float(static_cast<float>(in->Float(key, 0, kMostReal)));
  };
  real("rope.scaling.factor", "factor");
  real("rope.scaling.yarn_beta_fast", "beta_fast");
  real("rope.scaling.yarn_beta_slow", "beta_slow");
  real("rope.scaling.yarn_attn_factor", "attention_factor");
  if (in->Has("rope.scaling.original_context_length")) {
    json->Key("original_max_position_embeddings")
        .Int(in->Int("rope.scaling.original_context_length", 1, kMostPositions));
  }
  if (longer != nullptr && shorter != nullptr) {
    real("rope.scaling.attn_factor", "attention_factor");
    json->Key("long_factor");
    WriteFactors(*longer, in, json);
    json->Key("short_factor");
    WriteFactors(*shorter, in, json);
  }
  for (const auto& [key, value] : implied.scaling) json->Key(key).Raw(value);
  json->EndObject();
}

// Which layers have a window: all but every n-th, or a flag a layer.
void WritePattern(int64_t layers, GgufFields* in, base::JsonWriter* json) {
  constexpr char kPattern[] = "attention.sliding_window_pattern";
  if (!in->Has(kPattern)) return;
  std::vector<int64_t> flags = in->Ints(kPattern);
  if (flags.empty()) {
    json->Key("sliding_window_pattern").Int(in->Int(kPattern, 1, kMostLayers));
    return;
  }
  if (std::ssize(flags) > layers) flags.resize(static_cast<size_t>(layers));
  json->Key("layer_types").BeginArray();
  for (const int64_t flag : flags) json->String(flag ? "sliding_attention" : "full_attention");
  json->EndArray();
}

}  // namespace

void CopyKeys(GgufFields* in, std::initializer_list<GgufKey> keys, GgufImplied* implied) {
  for (const auto& [gguf, name] : keys) {
    if (in->Has(gguf)) implied->members.emplace_back(name, in->Json(gguf));
  }
}

std::vector<int64_t> CopyByLayer(const GgufSizes& sizes, GgufKey key, GgufImplied* implied) {
  std::vector<int64_t> values = sizes.in->Ints(key.gguf);
  const int64_t blocks = sizes.in->Int("block_count", 1, kMostLayers);
  if (std::ssize(values) != blocks) {
    sizes.in->Invalid(fmt::format("key {} has {} entries; expected one a layer, {}", key.gguf,
                                  values.size(), blocks));
  }
  // Layers that predict further tokens stand at the end.
  values.resize(static_cast<size_t>(sizes.layers));
  const int64_t most = std::ranges::max(values);
  for (size_t layer = 0; layer < values.size(); ++layer) {
    if (values[layer] == 0 || values[layer] == most) continue;
    sizes.in->Unsupported(key.gguf, fmt::format("{} in layer {}", values[layer], layer),
                          fmt::format("0 or {}, as in another layer", most));
  }
  implied->members.emplace_back(key.json, fmt::format("{}", std::max<int64_t>(most, 1)));
  return values;
}

void ImplyLayerTypes(const GgufSizes& sizes, std::string_view without, std::string_view with,
                     GgufImplied* implied) {
  std::string types;
  for (const int64_t heads :
       CopyByLayer(sizes, {"attention.head_count_kv", "num_key_value_heads"}, implied)) {
    types += fmt::format("{}\"{}\"", types.empty() ? "" : ", ", heads == 0 ? without : with);
  }
  implied->members.emplace_back("layer_types", fmt::format("[{}]", types));
}

void ImplyStateHeads(GgufFields* in, std::string_view heads, std::string_view head_dim,
                     GgufImplied* implied) {
  const int64_t count = in->Int("ssm.time_step_rank", 1, kMostHeads),
                values = in->Int("ssm.inner_size", 1, kMostHeads * kMostHeadDim);
  if (values % count != 0) {
    in->Invalid(fmt::format("key ssm.inner_size {} is no multiple of ssm.time_step_rank {}", values,
                            count));
  }
  implied->members.emplace_back(heads, fmt::format("{}", count));
  implied->members.emplace_back(head_dim, fmt::format("{}", values / count));
}

std::vector<float> ReadFactors(const TensorInfo& tensor, int64_t expected, GgufFields* in) {
  std::vector<float> values;
  if (tensor.type->dtype == tensor::DType::kF32 && tensor.shape.rank() == 1 &&
      (expected == 0 || tensor.shape[0] == expected)) {
    values.resize(static_cast<size_t>(tensor.shape[0]));
    weights::ExpandElements(tensor::DType::kF32, tensor.data.data(), tensor.shape[0],
                            values.data());
  } else {
    in->Invalid(fmt::format("tensor {} is {} {}; expected F32 [{}]", tensor.name, tensor.type->name,
                            tensor.shape.ToString(),
                            expected == 0 ? "n" : std::to_string(expected)));
  }
  return values;
}

base::Result<GgufConfigJson> GgufAsConfigJson(const GgufFile& gguf, const Family& family,
                                              GgufFields* in) {
  const GgufSizes sizes = ReadSizes(in);
  FB_RETURN_IF_ERROR(in->status());
  const GgufImplied implied = family.rules.gguf_implies(sizes);
  FB_RETURN_IF_ERROR(in->status());
  // What a family says stands in place of the shared keys.
  const auto says = [&](std::string_view name) {
    return std::ranges::any_of(implied.members,
                               [&](const auto& member) { return member.first == name; });
  };
  const TensorInfo* const embedding = FindTensor(gguf, "token_embd.weight");
  if (embedding == nullptr) in->Invalid("tensor token_embd.weight is missing");
  const auto has = [&](const char* name) { return FindTensor(gguf, name) != nullptr; };
  GgufConfigJson result{.has_rope_divisors = says("rope_parameters")};
  base::JsonWriter json(&result.text);
  json.BeginObject().Key("architectures").BeginArray().String(family.architectures[0]).EndArray();
  json.Key("vocab_size").Int(embedding == nullptr ? 1 : embedding->rows());
  json.Key("tie_word_embeddings").Bool(!has("output.weight"));
  json.Key("attention_bias").Bool(in->AnyLayerHas("attn_q.bias"));
  if (has("blk.0.attn_output.bias") && implied.output_bias_key)
    json.Key("attention_out_bias").Bool(true);
  json.Key("num_hidden_layers").Int(sizes.layers);
  for (const auto& [key, name] : kWhole) {
    if (!says(name) && in->Has(key)) json.Key(name).Int(in->Int(key, 0, kMostWhole));
  }
  for (const auto& [key, name] : kReal) {
    if (in->Has(key)) json.Key(name).Float(static_cast<float>(in->Float(key, 0, kMostReal)));
  }
  if (const int64_t turned = in->Int("rope.dimension_count", 1, kMostHeadDim, sizes.head_dim);
      turned != sizes.head_dim && !says("partial_rotary_factor")) {
    json.Key("partial_rotary_factor")
        .Double(static_cast<double>(turned) / static_cast<double>(sizes.head_dim));
  }
  if (const int64_t length = in->Int("attention.value_length", 1, kMostHeadDim, sizes.head_dim);
      length != sizes.head_dim && !says("v_head_dim")) {
    in->Unsupported("attention.value_length", fmt::format("{}", length),
                    "the same as attention.key_length");
  }
  if (const int64_t window = in->Int("attention.sliding_window", 0, kMostPositions, 0);
      window > 0) {
    if (family.rules.window == WindowRule::kNone)
      in->Unsupported("attention.sliding_window", fmt::format("{}", window), "0");
    json.Key("sliding_window").Int(window);
  }
  WritePattern(sizes.layers, in, &json);
  WriteScaling(gguf, implied, result.has_rope_divisors, in, &json);
  if (!says("moe_intermediate_size") && !says("intermediate_size")) {
    const int64_t width = in->Int("feed_forward_length", 1, kMostWidth);
    if (const int64_t expert = in->Int("expert_feed_forward_length", 1, kMostWidth, width);
        expert != width) {
      in->Unsupported("expert_feed_forward_length", fmt::format("{}", expert),
                      fmt::format("feed_forward_length, {}", width));
    }
  }
  for (const auto& [key, value] : implied.members) json.Key(key).Raw(value);
  json.EndObject();
  FB_RETURN_IF_ERROR(in->status());
  return result;
}

}  // namespace forebay::model
