#include "model/blocks/dense_ffn.h"

#include "model/blocks/kinds.h"

namespace forebay::model {
namespace {

constexpr Role kUp{"up"};

bool HasDenseFfn(const ModelConfig& config, int64_t layer) {
  return config.gated && config.HasFfn(layer) && !config.HasExperts(layer);
}

bool HasPlainFfn(const ModelConfig& config, int64_t layer) {
  return !config.gated && config.HasFfn(layer) && !config.HasExperts(layer);
}

void AddDown(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  const int64_t width = config.FfnWidth(index);
  weights::MatrixPlan down =
      weights::PlanMatrix(site.Label(kDown), dtype, names.down, names.down_bias, config.hidden_size,
                          width, kernels::LeafBorders::ForDown(width));
  down.KeepLeaves(FfnCutOf(shard, width).leaves);
  layer->matrices.push_back({kDown, Block::kFfn, LeafRule::kOwn, std::move(down)});
}

void PlanDenseFfn(const LayerSite& site, LayerPlan* layer) {
  site.AddNorms(kFfnNorm, site.names.ffn_norm, kFfnPostNorm, site.names.ffn_post_norm, layer);
  AddDenseMatrices(site, layer);
}

void PlanPlainFfn(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  site.AddNorms(kFfnNorm, names.ffn_norm, kFfnPostNorm, names.ffn_post_norm, layer);
  // No panel crosses a leaf of down, so that any part of these has whole panels.
  const int64_t width = config.intermediate_size;
  const kernels::LeafBorders leaves = kernels::LeafBorders::ForDown(width);
  std::vector<weights::PlannedRows> rows;
  for (int64_t leaf = shard.down_leaves.begin; leaf < shard.down_leaves.end; ++leaf)
    rows.push_back({0, leaves.begin[leaf], leaves.begin[leaf + 1] - leaves.begin[leaf]});
  weights::MatrixPlan up =
      weights::PlanRows(site.Label(kUp), dtype, {names.up}, {width}, rows, config.hidden_size);
  if (!names.up_bias.empty()) up.biases = {names.up_bias};
  layer->matrices.push_back({kUp, Block::kFfn, LeafRule::kReader, std::move(up)});
  AddDown(site, layer);
}

// What is multiplied by the matrix down, [rows, intermediate] T.
BlockWorkspace FfnWorkspace(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                            int64_t rows) {
  const int64_t inputs = FfnCutOf(shard, config.MostFfnWidth()).columns.size();
  const int64_t room = kernels::RoomForRows(config.packed, rows);
  return {tensor::BytesOf(dtype, static_cast<uint64_t>(room * inputs)), inputs};
}

void Run(const BlockContext& context, int64_t layer, int32_t rows, const Role& first,
         kernels::LinearOutput output) {
  const RowsOut inputs{context.activations.ffn, RowFormOf(context, layer, kDown)};
  const RowsIn x = BlockInput(context, layer, kFfnNorm, rows, RowFormOf(context, layer, first));
  LayerLinear(context, layer, first, x, inputs, rows, output);
  AddLinear(context, layer, kDown, kFfnPostNorm, {inputs.at, inputs.form}, rows);
}
void RunDenseFfn(const BlockContext& context, int64_t layer, int32_t rows) {
  Run(context, layer, rows, kGateUp, FfnOutput(*context.config));
}
void RunPlainFfn(const BlockContext& context, int64_t layer, int32_t rows) {
  Run(context, layer, rows, kUp, FfnOutput(*context.config));
}

}  // namespace

void AddDenseMatrices(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  const int64_t width = config.FfnWidth(index);
  layer->matrices.push_back(
      {kGateUp, Block::kFfn, LeafRule::kReader,
       weights::PlanGateUp(site.Label(kGateUp), dtype, names.gate, names.up, names.gate_bias,
                           names.up_bias, {width, FfnCutOf(shard, width).columns},
                           config.hidden_size)});
  AddDown(site, layer);
}

extern const FfnKind kDenseFfn;
const FfnKind kDenseFfn{"dense_ffn", &HasDenseFfn, &PlanDenseFfn, &FfnWorkspace, &RunDenseFfn};

extern const FfnKind kPlainFfn;
const FfnKind kPlainFfn{"plain_ffn", &HasPlainFfn, &PlanPlainFfn, &FfnWorkspace, &RunPlainFfn};

}  // namespace forebay::model
