// Mixtral: Mistral with experts in every layer.
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kMixtralArchitectures[] = {"MixtralForCausalLM"};

void ReadMixtralExperts(JsonFields* in, ModelConfig* config) {
  MoeConfig moe;
  moe.num_experts = in->Int("num_local_experts", 1, kMostExperts, 8);
  moe.experts_per_token = in->Int("num_experts_per_tok", 1, kMostExperts, 2);
  moe.intermediate_size = config->intermediate_size;
  moe.renormalize = true;
  moe.has_experts.assign(config->num_layers, 1);
  config->moe = std::move(moe);
}

// GGUF has llama.cpp's names, which stand for Qwen's.
LayerNames MixtralLayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = ExpertLayerNames(config, layer);
  if (config.architecture != kMixtralArchitectures[0]) return names;
  const std::string moe = LayerPrefix(layer) + "block_sparse_moe.";
  names.experts.router = moe + "gate.weight";
  names.experts.prefix = moe + "experts.";
  names.experts.gate = "w1.weight";
  names.experts.up = "w3.weight";
  names.experts.down = "w2.weight";
  return names;
}

}  // namespace

const Family kMixtral{
    "mixtral",
    "Mixtral",
    kMixtralArchitectures,
    &MixtralLayerNames,
    {.window = WindowRule::kAllLayers, .default_window = 0, .read_more = &ReadMixtralExperts}};

}  // namespace forebay::model
