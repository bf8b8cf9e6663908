// Llama 4 (text): experts with a shared one, dense layers between; layers that see their own chunk
// of the context, and layers without rope that see all of it. Published folders hold a vision part
// too, of which nothing is read.
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/gguf_as_json.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kLlama4Architectures[] = {"Llama4ForCausalLM",
                                                     "Llama4ForConditionalGeneration", "llama4"};

// intermediate_size is an expert's width here, intermediate_size_mlp a dense layer's.
void ReadLlama4Experts(JsonFields* in, ModelConfig* config) {
  MoeConfig moe;
  moe.num_experts = in->Int("num_local_experts", 1, kMostExperts);
  moe.experts_per_token = in->Int("num_experts_per_tok", 1, kMostExperts);
  if (moe.experts_per_token != 1) {
    in->Unsupported("num_experts_per_tok", fmt::format("{}", moe.experts_per_token), "1");
  }
  moe.scores = kernels::RouterScores::kSigmoidOfChosen;
  moe.weighs_input = true;
  moe.num_shared_experts = 1;
  moe.intermediate_size = config->intermediate_size;
  config->intermediate_size = in->Int("intermediate_size_mlp", 1, kMostWidth);
  const int64_t step = in->Int("interleave_moe_layer_step", 1, kMostLayers, 1);
  for (int64_t layer = 0; layer < config->num_layers; ++layer)
    moe.has_experts.push_back((layer + 1) % step == 0);
  if (in->Has("moe_layers")) {
    moe.has_experts.assign(config->num_layers, 0);
    for (const int32_t layer : in->LayerIndices("moe_layers")) {
      if (layer < config->num_layers) moe.has_experts[layer] = 1;
    }
  }
  config->moe = std::move(moe);
}

void ReadAttention(JsonFields* in, ModelConfig* config) {
  ReadLayersWithoutRope(in, 4, config);
  config->attention_chunk =
      static_cast<int32_t>(in->Int("attention_chunk_size", 1, kMostPositions, 8192));
  config->rope_interleaved = true;
  config->norm_after_rope = in->Bool("use_qk_norm", true);
  // Published files have a number or true.
  int64_t number = 0;
  const bool numbered = !in->object().at_key("attn_temperature_tuning").get(number);
  if (numbered ? number != 0 : in->Bool("attn_temperature_tuning", true)) {
    config->temperature_floor = in->Float("floor_scale", 1, kMostPositions, 8192);
    config->temperature_scale = in->Float("attn_scale", 0, 1e6, 0.1);
  }
}

void ReadLlama4(JsonFields* in, ModelConfig* config) {
  ReadLlama4Experts(in, config);
  ReadAttention(in, config);
}

LayerNames Llama4LayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = LlamaLayerNames(config, layer);
  const std::string block = LayerPrefix(layer) + "feed_forward.";
  names.gate = block + "gate_proj.weight";
  names.up = block + "up_proj.weight";
  names.down = block + "down_proj.weight";
  names.experts = {.router = block + "router.weight",
                   .prefix = block + "experts.",
                   .shared_gate = block + "shared_expert.gate_proj.weight",
                   .shared_up = block + "shared_expert.up_proj.weight",
                   .shared_down = block + "shared_expert.down_proj.weight"};
  return names;
}

// Files have neither norms of q and k, which the model with 128 experts lacks, nor chunks and
// temperatures, which are those of all published models.
GgufImplied Llama4Implied(const GgufSizes& sizes) {
  constexpr int64_t kExpertsWithoutNorm = 128;
  GgufImplied implied;
  CopyKeys(sizes.in,
           {{"feed_forward_length", "intermediate_size_mlp"},
            {"expert_feed_forward_length", "intermediate_size"},
            {"interleave_moe_layer_step", "interleave_moe_layer_step"}},
           &implied);
  if (sizes.in->Int("expert_count", 1, kMostExperts) == kExpertsWithoutNorm)
    implied.members.emplace_back("use_qk_norm", "false");
  return implied;
}

}  // namespace

const Family kLlama4{"llama4",
                     "Llama 4 (text)",
                     kLlama4Architectures,
                     &Llama4LayerNames,
                     {.text_part = true, .read_more = &ReadLlama4, .gguf_implies = &Llama4Implied}};

}  // namespace forebay::model
