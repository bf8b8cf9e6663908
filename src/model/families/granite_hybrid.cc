// Granite 4: Mamba-2 layers and attention, mostly without rope, experts with a shared block or that
// block alone, and Granite's factors.
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/gguf_as_json.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kGraniteHybridArchitectures[] = {"GraniteMoeHybridForCausalLM",
                                                            "granitehybrid"};
constexpr Mamba2Keys kGraniteMamba2{.heads = "mamba_n_heads",
                                    .head_dim = "mamba_d_head",
                                    .state = "mamba_d_state",
                                    .groups = "mamba_n_groups",
                                    .taps = "mamba_d_conv",
                                    .conv_bias = "mamba_conv_bias"};

// Which layers are Mamba-2; none: the model keeps no states.
std::vector<uint8_t> ReadGraniteLayers(JsonFields* in, const ModelConfig& config) {
  std::vector<uint8_t> is_mamba;
  const std::vector<std::string> types = in->Strings("layer_types");
  if (!HasEntryALayer(in, "layer_types", types.size(), config.num_layers)) return {};
  for (const std::string& type : types) {
    const bool mamba = type == "mamba" || type == "linear_attention";
    if (!mamba && type != "attention" && type != "full_attention") {
      in->Unsupported("layer_types", type, "mamba, attention");
      return {};
    }
    is_mamba.push_back(mamba);
  }
  if (std::ranges::count(is_mamba, 0) == 0)
    in->Invalid("layer_types has no attention; expected it in one layer at least");
  return is_mamba;
}

void ReadGraniteHybrid(JsonFields* in, ModelConfig* config) {
  ReadGraniteFactors(in, config);
  const std::string positions = in->String("position_embedding_type", "nope");
  if (positions == "nope" || positions == "none") {
    config->without_rope.assign(static_cast<size_t>(config->num_layers), 1);
  } else if (positions != "rope") {
    in->Unsupported("position_embedding_type", positions, "nope, rope");
  }
  MoeConfig moe;
  moe.num_experts = in->Int("num_local_experts", 0, kMostExperts);
  moe.num_shared_experts = 1;
  moe.shared_intermediate_size = in->Int("shared_intermediate_size", 1, kMostWidth);
  if (moe.num_experts > 0) {
    moe.experts_per_token = in->Int("num_experts_per_tok", 1, kMostExperts);
    moe.intermediate_size = config->intermediate_size;
    moe.scores = kernels::RouterScores::kSoftmaxOfChosen;
    moe.has_experts.assign(static_cast<size_t>(config->num_layers), 1);
    config->moe = std::move(moe);
  } else {
    config->intermediate_size = moe.shared_intermediate_size;
  }
  std::vector<uint8_t> is_mamba = ReadGraniteLayers(in, *config);
  if (std::ranges::count(is_mamba, 1) == 0) return;
  StateConfig& net = ReadMamba2(kGraniteMamba2, in, config);
  net.normed_heads = net.value_heads;
  net.has_state = std::move(is_mamba);
}

// GGUF files have the shared block's gate and up apart.
LayerNames GraniteHybridLayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = LlamaLayerNames(config, layer);
  const std::string prefix = LayerPrefix(layer), moe = prefix + "block_sparse_moe.",
                    shared = prefix + "shared_mlp.";
  names.experts.router = moe + "router.layer.weight";
  names.experts.prefix = moe + "experts.";
  names.gate = names.up = shared + "input_linear.weight";
  if (config.architecture == kGraniteHybridArchitectures[1]) {
    names.gate = shared + "gate_proj.weight";
    names.up = shared + "up_proj.weight";
  }
  names.experts.shared_gate = names.gate;
  names.experts.shared_up = names.up;
  names.down = names.experts.shared_down = shared + "output_linear.weight";
  names.state = Mamba2Names(prefix + "mamba.");
  return names;
}

// rope.scaling.finetuned says whether layers with attention have rope; a file without it has.
GgufImplied GraniteHybridImplied(const GgufSizes& sizes) {
  GgufFields* const in = sizes.in;
  GgufImplied implied;
  ImplyMamba2(kGraniteMamba2, in, &implied);
  ImplyLayerTypes(sizes, "mamba", "attention", &implied);
  const int64_t experts = in->Int("expert_count", 0, kMostExperts, 0);
  implied.members.emplace_back("num_local_experts", fmt::format("{}", experts));
  constexpr char kShared[] = "expert_shared_feed_forward_length";
  const char* const width = experts > 0 || in->Has(kShared) ? kShared : "feed_forward_length";
  implied.members.emplace_back("shared_intermediate_size",
                               fmt::format("{}", in->Int(width, 1, kMostWidth)));
  const bool rope = in->Number("rope.scaling.finetuned").value_or(1) != 0;
  implied.members.emplace_back("position_embedding_type", rope ? "\"rope\"" : "\"nope\"");
  return implied;
}

}  // namespace

const Family kGraniteHybrid{
    "granite_hybrid",
    "Granite 4 (hybrid)",
    kGraniteHybridArchitectures,
    &GraniteHybridLayerNames,
    {.read_more = &ReadGraniteHybrid, .gguf_implies = &GraniteHybridImplied}};

}  // namespace forebay::model
