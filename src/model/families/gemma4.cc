// Gemma 4 (text): Gemma 3's norms with weights as they are stored; heads of other sizes, and keys
// as values, in layers without a window; v normed. E2B and E4B take inputs by layer, and their last
// layers read the keys and values of earlier ones; 26B-A4B has experts beside its dense blocks.
#include <algorithm>

#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/gguf_as_json.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kGemma4Architectures[] = {"Gemma4ForCausalLM",
                                                     "Gemma4ForConditionalGeneration", "gemma4"};

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

void ReadGemma4Experts(JsonFields* in, ModelConfig* config) {
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
  ReadGemma4Experts(in, config);
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

// The KV heads of layers with a window and of those without, by layer in the file or one for all.
void ImplyKvHeads(const std::vector<int64_t>& windowed, GgufFields* in, GgufImplied* implied) {
  constexpr char kHeads[] = "attention.head_count_kv";
  const std::vector<int64_t> by_layer = in->Ints(kHeads);
  if (by_layer.empty()) return;
  if (by_layer.size() != windowed.size()) {
    return in->Invalid(fmt::format("key {} has {} entries, attention.sliding_window_pattern {}",
                                   kHeads, by_layer.size(), windowed.size()));
  }
  int64_t heads[] = {0, 0};  // without a window, with one
  for (size_t layer = 0; layer < by_layer.size(); ++layer) {
    int64_t& of_kind = heads[windowed[layer] != 0];
    if (of_kind != 0 && of_kind != by_layer[layer]) {
      return in->Unsupported(kHeads, fmt::format("{} in layer {}", by_layer[layer], layer),
                             fmt::format("{}, as in earlier layers of the kind", of_kind));
    }
    of_kind = by_layer[layer];
  }
  implied->members.emplace_back("num_key_value_heads",
                                fmt::format("{}", heads[1] != 0 ? heads[1] : heads[0]));
  if (heads[0] != 0)
    implied->members.emplace_back("num_global_key_value_heads", fmt::format("{}", heads[0]));
}

// The width of dense blocks, which may be twice as much in layers that read earlier keys and
// values.
void ImplyWidths(GgufFields* in, GgufImplied* implied) {
  constexpr char kWidth[] = "feed_forward_length";
  const std::vector<int64_t> widths = in->Ints(kWidth);
  if (widths.empty()) return;
  const auto readers =
      static_cast<size_t>(in->Int("attention.shared_kv_layers", 0, kMostLayers, 0));
  for (size_t layer = 0; layer < widths.size(); ++layer) {
    const int64_t times = layer + readers >= widths.size() && widths.back() != widths[0] ? 2 : 1;
    if (widths[layer] != times * widths[0]) {
      return in->Unsupported(kWidth, fmt::format("{} in layer {}", widths[layer], layer),
                             fmt::format("{}", times * widths[0]));
    }
  }
  implied->members.emplace_back("intermediate_size", fmt::format("{}", widths[0]));
  implied->members.emplace_back("use_double_wide_mlp",
                                widths.back() != widths[0] ? "true" : "false");
}

// Layers without a window turn the first frequencies alone: rope_freqs.weight divides those by 1,
// the others by 1e30.
std::string TurnedPart(GgufFields* in) {
  constexpr float kNever = 1e30f;
  const weights::TensorInfo* const divisors = in->Find("rope_freqs.weight");
  if (divisors == nullptr) return "1";
  const std::vector<float> values = ReadFactors(*divisors, 0, in);
  const auto turned = std::ranges::find(values, kNever) - values.begin();
  for (ptrdiff_t i = 0; i < std::ssize(values); ++i) {
    if (values[i] == (i < turned ? 1 : kNever)) continue;
    in->Invalid(
        fmt::format("tensor rope_freqs.weight: element {} is {}; expected 1 in the first "
                    "ones and 1e30 in the rest",
                    i, values[i]));
  }
  return fmt::format("{}", static_cast<double>(turned) / static_cast<double>(values.size()));
}

GgufImplied Gemma4Implied(const GgufSizes& sizes) {
  GgufFields* const in = sizes.in;
  const auto head_dim = in->Int("attention.key_length_swa", 1, kMostHeadDim, sizes.head_dim);
  for (const char* key : {"attention.value_length_swa", "rope.dimension_count_swa"}) {
    if (const int64_t length = in->Int(key, 1, kMostHeadDim, head_dim); length != head_dim)
      in->Unsupported(key, fmt::format("{}", length), "the same as attention.key_length_swa");
  }
  GgufImplied implied;
  implied.members = {{"hidden_activation", "\"gelu_pytorch_tanh\""},
                     {"head_dim", fmt::format("{}", head_dim)},
                     {"global_head_dim", fmt::format("{}", sizes.head_dim)}};
  CopyKeys(in,
           {{"attention.shared_kv_layers", "num_kv_shared_layers"},
            {"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
            {"expert_count", "num_experts"},
            {"expert_used_count", "top_k_experts"},
            {"expert_feed_forward_length", "moe_intermediate_size"}},
           &implied);
  const bool experts = in->Int("expert_count", 0, kMostExperts, 0) > 0;
  implied.members.emplace_back("enable_moe_block", experts ? "true" : "false");
  const std::vector<int64_t> windowed = in->Ints("attention.sliding_window_pattern");
  ImplyKvHeads(windowed, in, &implied);
  ImplyWidths(in, &implied);
  const auto full = std::ranges::find(windowed, 0) - windowed.begin();
  const bool values_are_keys =
      full < std::ssize(windowed) && in->Find(fmt::format("blk.{}.attn_v.weight", full)) == nullptr;
  implied.members.emplace_back("attention_k_eq_v", values_are_keys ? "true" : "false");
  const std::string theta = in->Has("rope.freq_base") ? in->Json("rope.freq_base") : "1000000",
                    windowed_theta =
                        in->Has("rope.freq_base_swa") ? in->Json("rope.freq_base_swa") : "10000";
  implied.members.emplace_back(
      "rope_parameters",
      fmt::format(R"({{"full_attention": {{"rope_type": "proportional", "rope_theta": {}, )"
                  R"("partial_rotary_factor": {}}}, "sliding_attention": {{"rope_theta": {}}}}})",
                  theta, TurnedPart(in), windowed_theta));
  return implied;
}

}  // namespace

const Family kGemma4{"gemma4",
                     "Gemma 4 (text)",
                     kGemma4Architectures,
                     &Gemma4LayerNames,
                     {.qk_norm = true,
                      .window = WindowRule::kTypedLayers,
                      .default_window = 512,
                      .window_pattern = 6,
                      .default_head_dim = 256,
                      .text_part = true,
                      .activation = Activation::kGelu,
                      .read_more = &ReadGemma4,
                      .gguf_implies = &Gemma4Implied}};

}  // namespace forebay::model
