// LFM2: short convolutions between two gates, and attention with q and k norm on some layers.
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/gguf_as_json.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kLfm2Architectures[] = {"Lfm2ForCausalLM", "lfm2"};

// Which layers are convolutions: those that layer_types names, or all but full_attn_idxs.
void ReadLfm2Layers(JsonFields* in, ModelConfig* config) {
  std::vector<uint8_t>& has_state = config->states->has_state;
  const std::vector<std::string> types = in->Strings("layer_types");
  const std::vector<int32_t> attention = in->LayerIndices("full_attn_idxs");
  if (types.empty()) {
    has_state.assign(static_cast<size_t>(config->num_layers), 1);
    for (const int32_t layer : attention) {
      if (layer >= config->num_layers) {
        return in->Invalid(fmt::format("full_attn_idxs has layer {}; expected less than {}", layer,
                                       config->num_layers));
      }
      has_state[layer] = 0;
    }
  } else if (!HasEntryALayer(in, "layer_types", types.size(), config->num_layers)) {
    return;
  }
  for (const std::string& type : types) {
    if (type != "conv" && type != "full_attention")
      return in->Unsupported("layer_types", type, "conv, full_attention");
    has_state.push_back(type == "conv");
  }
  if (std::ranges::count(has_state, 0) == 0)
    in->Invalid("all layers are convolutions; expected full_attention in one at least");
}

void ReadLfm2(JsonFields* in, ModelConfig* config) {
  config->rms_norm_eps = static_cast<float>(in->Float("norm_eps", 0, 1, 1e-5));
  config->tie_word_embeddings = in->Bool("tie_word_embeddings", in->Bool("tie_embedding", true));
  const double factor = in->Float("block_ffn_dim_multiplier", 1e-3, 1e3, 1.0);
  const int64_t multiple = in->Int("block_multiple_of", 1, kMostWidth, 256);
  if (in->Bool("block_auto_adjust_ff_dim", true)) {
    const int64_t width =
        static_cast<int64_t>(factor * static_cast<double>(2 * config->intermediate_size / 3));
    config->intermediate_size = std::max<int64_t>(1, (width + multiple - 1) / multiple) * multiple;
  }
  if (config->intermediate_size > kMostWidth) {
    return in->Invalid(
        fmt::format("block_ffn_dim_multiplier {} makes blocks of width {}; expected at most {}",
                    factor, config->intermediate_size, kMostWidth));
  }
  if (in->Bool("conv_bias", false)) in->Unsupported("conv_bias", "true", "false");
  if (config->hidden_size % config->num_heads != 0) {
    return in->Invalid(fmt::format("hidden_size {} is no multiple of num_attention_heads {}",
                                   config->hidden_size, config->num_heads));
  }
  // Ranks cut the channels as they cut attention's heads.
  StateConfig& net = config->states.emplace();
  net.kind = StateKind::kShortConv;
  net.key_heads = net.value_heads = config->num_heads;
  net.value_dim = config->hidden_size / config->num_heads;
  net.taps = in->Int("conv_L_cache", 2, kernels::kConvTaps);
  net.gates = 2;
  net.numbers = 0;
  ReadLfm2Layers(in, config);
}

LayerNames Lfm2LayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = LlamaLayerNames(config, layer);
  const std::string prefix = LayerPrefix(layer), attention = prefix + "self_attn.",
                    conv = prefix + "conv.", ffn = prefix + "feed_forward.";
  names.attention_norm = prefix + "operator_norm.weight";
  names.ffn_norm = prefix + "ffn_norm.weight";
  names.q_norm = attention + "q_layernorm.weight";
  names.k_norm = attention + "k_layernorm.weight";
  names.o = attention + "out_proj.weight";
  names.gate = ffn + "w1.weight";
  names.up = ffn + "w3.weight";
  names.down = ffn + "w2.weight";
  names.state.qkv = conv + "in_proj.weight";
  names.state.conv = conv + "conv.weight";
  names.state.out = conv + "out_proj.weight";
  return names;
}

std::string Lfm2NameHere(const ModelConfig&, std::string_view stored) {
  constexpr Beginning kBeginnings[] = {{"model.embedding_norm.", "model.norm."}};
  return WithBeginning(stored, kBeginnings);
}

GgufImplied Lfm2Implied(const GgufSizes& sizes) {
  GgufImplied implied;
  CopyKeys(
      sizes.in,
      {{"shortconv.l_cache", "conv_L_cache"}, {"attention.layer_norm_rms_epsilon", "norm_eps"}},
      &implied);
  implied.members.emplace_back("block_auto_adjust_ff_dim", "false");  // it is the width itself
  ImplyLayerTypes(sizes, "conv", "full_attention", &implied);
  return implied;
}

}  // namespace

const Family kLfm2{"lfm2",
                   "LFM2",
                   kLfm2Architectures,
                   &Lfm2LayerNames,
                   {.qk_norm = true,
                    .width_key = "block_ff_dim",
                    .read_more = &ReadLfm2,
                    .gguf_implies = &Lfm2Implied},
                   &Lfm2NameHere};

}  // namespace forebay::model
