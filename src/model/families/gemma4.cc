// Gemma 4 (text): Gemma 3's norms with weights as they are stored; heads of other sizes, and keys
// as values, in layers without a window; v normed. E2B and E4B take inputs by layer, and their last
// layers read the keys and values of earlier ones; 26B-A4B has experts beside its dense blocks.
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kGemma4Architectures[] = {"Gemma4ForCausalLM",
                                                     "Gemma4ForConditionalGeneration"};

// A layer without a window has other heads.
void ReadFullLayers(JsonFields* in, ModelConfig* config) {
  HeadSizes full{config->num_kv_heads, config->head_dim};
  full.head_dim = in->Int("global_head_dim", 1, kMostHeadDim, full.head_dim);
  config->full_values_are_keys = in->Bool("attention_k_eq_v", false);
  const int64_t kv_heads =
      in->Int("num_global_key_value_heads", 1, kMostHeads, config->num_kv_heads);
  if (config->full_values_are_keys) full.kv_heads = kv_heads;
  config->full_heads = full;
}

void ReadLayerInputs(JsonFields* in, ModelConfig* config) {
  config->layer_input_size = in->Int("hidden_size_per_layer_input", 0, kMostWidth, 0);
  const int64_t rows =
      in->Int("vocab_size_per_layer_input", 1, kMostVocabulary, config->vocab_size);
  if (config->layer_input_size > 0 && rows != config->vocab_size)
    in->Unsupported("vocab_size_per_layer_input", fmt::format("{}", rows),
                    fmt::format("vocab_size, {}", config->vocab_size));
}

void ReadExperts(JsonFields* in, ModelConfig* config) {
  if (!in->Bool("enable_moe_block", false)) return;
  MoeConfig moe;
  moe.num_experts = in->Int("num_experts", 1, kMostExperts);
  moe.experts_per_token = in->Int("top_k_experts", 1, kMostExperts);
  moe.intermediate_size = in->Int("moe_intermediate_size", 1, kMostWidth);
  moe.renormalize = true;
  moe.beside_dense = true;
  moe.has_experts.assign(static_cast<size_t>(config->num_layers), 1);
  config->moe = std::move(moe);
}

void ReadGemma4(JsonFields* in, ModelConfig* config) {
  if (const std::string both = in->String("use_bidirectional_attention", "vision");
      both != "vision")
    in->Unsupported("use_bidirectional_attention", both, "vision, or none");
  ReadAnyGemma(in, config);
  config->value_norm = true;
  config->layer_scales = true;
  config->score_factor = 1;
  ReadFullLayers(in, config);
  config->kv_readers = in->Int("num_kv_shared_layers", 0, config->num_layers - 1, 0);
  if (in->Bool("use_double_wide_mlp", false) && config->kv_readers > 0)
    config->kv_reader_intermediate_size = 2 * config->intermediate_size;
  ReadLayerInputs(in, config);
  ReadExperts(in, config);
}

LayerNames Gemma4LayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = LlamaLayerNames(config, layer);
  const std::string prefix = LayerPrefix(layer);
  names.scale = prefix + "layer_scalar";
  if (config.KvLayerOf(layer) != layer) {
    names.k = names.v = names.k_norm = "";
  } else if (config.full_values_are_keys && config.sliding_window[layer] == 0) {
    names.v = names.k;
  }
  names.inputs = {.projection = "model.per_layer_model_projection.weight",
                  .norm = "model.per_layer_projection_norm.weight",
                  .gate = prefix + "per_layer_input_gate.weight",
                  .out = prefix + "per_layer_projection.weight",
                  .post_norm = prefix + "post_per_layer_input_norm.weight"};
  names.experts = {.router = prefix + "router.proj.weight",
                   .prefix = prefix + "experts.",
                   .router_norm = prefix + "router.scale",
                   .expert_scales = prefix + "router.per_expert_scale",
                   .norm = prefix + "pre_feedforward_layernorm_2.weight",
                   .post_norm = prefix + "post_feedforward_layernorm_2.weight",
                   .dense_post_norm = prefix + "post_feedforward_layernorm_1.weight"};
  return names;
}

}  // namespace

const Family kGemma4{"gemma4",
                     kGemma4Architectures,
                     &Gemma4LayerNames,
                     {.qk_norm = true,
                      .window = WindowRule::kTypedLayers,
                      .default_window = 512,
                      .window_pattern = 6,
                      .default_head_dim = 256,
                      .text_part = true,
                      .activation = Activation::kGelu,
                      .read_more = &ReadGemma4}};

}  // namespace forebay::model
