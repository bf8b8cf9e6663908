// Llama 4 (text): experts with a shared one, dense layers between. Known by its configuration alone.
#include "model/config_reader.h"
#include "model/families/families.h"
#include "model/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kArchitectures[] = {"Llama4ForCausalLM"};

// intermediate_size is an expert's width here, intermediate_size_mlp a dense layer's.
void ReadExperts(JsonFields* in, ModelConfig* config) {
  MoeConfig moe;
  moe.num_experts = in->Int("num_local_experts", 1, kMostExperts);
  moe.experts_per_token = in->Int("num_experts_per_tok", 1, kMostExperts);
  moe.num_shared_experts = 1;
  moe.intermediate_size = config->intermediate_size;
  config->intermediate_size = in->Int("intermediate_size_mlp", 1, kMostWidth);
  const int64_t step = in->Int("interleave_moe_layer_step", 1, kMostLayers, 1);
  for (int64_t layer = 0; layer < config->num_layers; ++layer) moe.has_experts.push_back((layer + 1) % step == 0);
  if (in->Has("moe_layers")) {
    moe.has_experts.assign(config->num_layers, 0);
    for (const int32_t layer : in->LayerIndices("moe_layers")) {
      if (layer < config->num_layers) moe.has_experts[layer] = 1;
    }
  }
  config->moe = std::move(moe);
}

}  // namespace

// Its norms of q and k have no weights.
const Family kLlama4{"llama4", kArchitectures, nullptr, {.read_more = &ReadExperts}};

}  // namespace forebay::model
