// MiniMax-M2: experts chosen by sigmoids with a correction bias, norms of q and k over all heads of
// a row, rope on a part of a head. Layers that predict further tokens are not loaded.
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/gguf_as_json.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kMiniMaxM2Architectures[] = {"MiniMaxM2ForCausalLM", "minimax-m2"};

void ReadMiniMaxM2(JsonFields* in, ModelConfig* config) {
  config->rotary_dim = in->Int("rotary_dim", 2, kMostHeadDim, config->head_dim);
  config->qk_norm_of_rows = in->Bool("use_qk_norm", true);
  const std::string kind = in->String("qk_norm_type", "per_layer");
  if (kind != "per_layer") in->Unsupported("qk_norm_type", kind, "per_layer");
  MoeConfig moe;
  moe.num_experts = in->Int("num_local_experts", 1, kMostExperts);
  moe.experts_per_token = in->Int("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config->intermediate_size;
  const std::string scores = in->String("scoring_func", "sigmoid");
  if (scores != "sigmoid") in->Unsupported("scoring_func", scores, "sigmoid");
  moe.scores = kernels::RouterScores::kSigmoid;
  moe.selection_bias = in->Bool("use_routing_bias", true);
  moe.renormalize = true;
  moe.has_experts.assign(static_cast<size_t>(config->num_layers), 1);
  config->moe = std::move(moe);
}

LayerNames MiniMaxM2LayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = LlamaLayerNames(config, layer);
  const std::string block = LayerPrefix(layer) + "block_sparse_moe.";
  const bool gguf = config.architecture == kMiniMaxM2Architectures[1];
  names.experts = {.router = block + "gate.weight",
                   .selection_bias = block + "e_score_correction_bias",
                   .prefix = gguf ? LayerPrefix(layer) + "mlp.experts." : block + "experts."};
  if (gguf) return names;
  names.experts.gate = "w1.weight";
  names.experts.up = "w3.weight";
  names.experts.down = "w2.weight";
  return names;
}

GgufImplied MiniMaxM2Implied(const GgufSizes& sizes) {
  GgufImplied implied;
  CopyKeys(
      sizes.in,
      {{"expert_feed_forward_length", "intermediate_size"}, {"rope.dimension_count", "rotary_dim"}},
      &implied);
  const int64_t gates = sizes.in->Int("expert_gating_func", 0, kMostGatingFunctions, kSigmoidGates);
  if (gates != kSigmoidGates)
    sizes.in->Unsupported("expert_gating_func", std::to_string(gates), "2 (sigmoid)");
  implied.members.emplace_back("partial_rotary_factor", "1");
  return implied;
}

}  // namespace

const Family kMiniMaxM2{
    "minimax_m2",
    "MiniMax-M2",
    kMiniMaxM2Architectures,
    &MiniMaxM2LayerNames,
    {.partial_rope = true, .read_more = &ReadMiniMaxM2, .gguf_implies = &MiniMaxM2Implied}};

}  // namespace forebay::model
