#include "model/blocks/dense_ffn.h"

#include "model/blocks/kinds.h"

namespace forebay::model {
namespace {

bool HasDenseFfn(const ModelConfig& config, int64_t layer) {
  return config.gated && (!config.moe || config.moe->has_experts[layer] == 0);
}

void PlanDenseFfn(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  site.AddNorms(kFfnNorm, names.ffn_norm, kFfnPostNorm, names.ffn_post_norm, layer);
  layer->matrices.push_back(
      {kGateUp, Block::kFfn, LeafRule::kReader,
       weights::PlanGateUp(site.Label(kGateUp), dtype, names.gate, names.up, names.gate_bias,
                           names.up_bias, {config.intermediate_size, shard.intermediate},
                           config.hidden_size)});
  weights::MatrixPlan down = weights::PlanMatrix(
      site.Label(kDown), dtype, names.down, names.down_bias, config.hidden_size,
      config.intermediate_size, kernels::LeafBorders::ForDown(config.intermediate_size));
  down.KeepLeaves(shard.down_leaves);
  layer->matrices.push_back({kDown, Block::kFfn, LeafRule::kOwn, std::move(down)});
}

// The gated product, [rows, intermediate] T.
BlockWorkspace DenseFfnWorkspace(const ModelConfig&, const Shard& shard, tensor::DType dtype,
                                 int64_t rows) {
  const int64_t inputs = shard.intermediate.size();
  return {tensor::BytesOf(dtype, static_cast<uint64_t>(rows * inputs)), inputs};
}

void RunDenseFfn(const BlockContext& context, int64_t layer, int32_t rows) {
  const Activations& activations = context.activations;
  const std::byte* const x = BlockInput(context, layer, kFfnNorm, rows);
  LayerLinear(context, layer, kGateUp, x, activations.ffn, rows, GatedOutput(*context.config));
  AddLinear(context, layer, kDown, kFfnPostNorm, activations.ffn, rows);
}

}  // namespace

extern const FfnKind kDenseFfn;
const FfnKind kDenseFfn{"dense_ffn", &HasDenseFfn, &PlanDenseFfn, &DenseFfnWorkspace, &RunDenseFfn};

}  // namespace forebay::model
