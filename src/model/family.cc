#include "model/family.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/json_fields.h"

namespace forebay::model {

std::span<const Family* const> Families() {
  // As the pages list them.
  static const Family* const kFamilies[] = {
      &kLlama,         &kMistral,   &kMinistral3, &kMixtral,   &kQwen2,     &kQwen3,
      &kQwen3Moe,      &kQwen35,    &kQwen35Moe,  &kQwen3Next, &kGemma2,    &kGemma3,
      &kGemma4,        &kGptOss,    &kDeepseekV3, &kGlm4,      &kGlm4Moe,   &kGlm4MoeLite,
      &kMiniMaxM2,     &kPhi3,      &kOlmo2,      &kOlmo3,     &kSmolLm3,   &kGranite,
      &kGraniteHybrid, &kNemotronH, &kSeedOss,    &kErnie45,   &kExaone4,   &kHunyuan,
      &kLfm2,          &kLlama4,    &kBert,       &kRoberta,   &kModernBert};
  return kFamilies;
}

const Family* FindFamily(std::string_view id) {
  for (const Family* family : Families()) {
    if (family->id == id) return family;
  }
  return nullptr;
}

const Family* FamilyOfArchitecture(std::string_view architecture) {
  for (const Family* family : Families()) {
    const auto& known = family->architectures;
    if (std::find(known.begin(), known.end(), architecture) != known.end()) return family;
  }
  if (!architecture.ends_with(kOfLabels)) return nullptr;
  // The same layers below another head.
  const std::string body(architecture.substr(0, architecture.size() - kOfLabels.size()));
  const Family* const family = FamilyOfArchitecture(body + "ForCausalLM");
  return family != nullptr ? family : FamilyOfArchitecture(body + "Model");
}

std::string SupportedArchitectures() {
  std::string list;
  for (const Family* family : Families())
    list += (list.empty() ? "" : ", ") + std::string(family->architectures[0]);
  return list;
}

std::span<const std::string_view> GgufArchitectures(const Family& family) {
  const std::span<const std::string_view> names = family.architectures;
  size_t first = names.size();
  while (first > 0 && std::ranges::none_of(names[first - 1], [](char letter) {
           return 'A' <= letter && letter <= 'Z';
         }))
    --first;
  return names.subspan(first);
}

std::string SupportedGgufArchitectures() {
  std::set<std::string_view> names;
  for (const Family* family : Families()) {
    for (const std::string_view name : GgufArchitectures(*family)) names.insert(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void ReadLayersWithoutRope(JsonFields* in, int64_t interval, ModelConfig* config) {
  interval = in->Int("no_rope_layer_interval", 1, kMostLayers, interval);
  for (int64_t layer = 0; layer < config->num_layers; ++layer)
    config->without_rope.push_back((layer + 1) % interval == 0);
  const std::vector<int32_t> turned = in->Sizes("no_rope_layers");
  if (turned.empty()) return;
  if (!HasEntryALayer(in, "no_rope_layers", turned.size(), config->num_layers)) return;
  for (size_t layer = 0; layer < turned.size(); ++layer)
    config->without_rope[layer] = turned[layer] == 0;
}

bool HasEntryALayer(JsonFields* in, std::string_view key, size_t entries, int64_t num_layers) {
  if (static_cast<int64_t>(entries) == num_layers) return true;
  in->Invalid(
      fmt::format("{} has {} entries; expected num_hidden_layers = {}", key, entries, num_layers));
  return false;
}

GgufImplied NothingImplied(const GgufSizes&) { return {}; }

std::string BiasOf(std::string_view weight) {
  return std::string(weight.substr(0, weight.rfind('.'))) + ".bias";
}

std::string WithBeginning(std::string_view name, std::span<const Beginning> beginnings) {
  for (const auto& [there, here] : beginnings) {
    if (name.starts_with(there)) return std::string(here).append(name.substr(there.size()));
  }
  return std::string(name);
}

std::string LayerPrefix(int64_t layer) { return "model.layers." + std::to_string(layer) + "."; }

LayerNames LlamaLayerNames(const ModelConfig& config, int64_t layer) {
  const std::string prefix = LayerPrefix(layer);
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  LayerNames names;
  if (config.norm_before) {
    names.attention_norm = prefix + "input_layernorm.weight";
    names.ffn_norm = prefix + (config.norm_after ? "pre_feedforward_layernorm.weight"
                                                 : "post_attention_layernorm.weight");
  }
  if (config.norm_after) {
    names.attention_post_norm = prefix + "post_attention_layernorm.weight";
    names.ffn_post_norm = prefix + "post_feedforward_layernorm.weight";
  }
  names.q = attention + "q_proj.weight";
  names.k = attention + "k_proj.weight";
  names.v = attention + "v_proj.weight";
  names.o = attention + "o_proj.weight";
  names.gate = mlp + "gate_proj.weight";
  names.up = mlp + "up_proj.weight";
  names.down = mlp + "down_proj.weight";
  if (config.attention_bias) {
    names.q_bias = attention + "q_proj.bias";
    names.k_bias = attention + "k_proj.bias";
    names.v_bias = attention + "v_proj.bias";
  }
  if (config.attention_out_bias) names.o_bias = attention + "o_proj.bias";
  if (config.mlp_bias) {
    names.gate_bias = mlp + "gate_proj.bias";
    names.up_bias = mlp + "up_proj.bias";
    names.down_bias = mlp + "down_proj.bias";
  }
  if (config.qk_norm || config.qk_norm_of_rows) {
    names.q_norm = attention + "q_norm.weight";
    names.k_norm = attention + "k_norm.weight";
  }
  return names;
}

LayerNames ExpertLayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = LlamaLayerNames(config, layer);
  const std::string mlp = LayerPrefix(layer) + "mlp.";
  names.experts = {.router = mlp + "gate.weight", .prefix = mlp + "experts."};
  return names;
}

}  // namespace forebay::model
