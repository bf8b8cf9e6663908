// A feed-forward block without a gate: down(activation(up(x))).
#include "model/blocks/dense_ffn.h"
#include "model/blocks/kinds.h"

namespace forebay::model {
namespace {

constexpr Role kUp{"up"};

bool HasPlainFfn(const ModelConfig& config, int64_t /*layer*/) { return !config.gated; }

void PlanPlainFfn(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  site.AddNorms(kFfnNorm, names.ffn_norm, kFfnPostNorm, names.ffn_post_norm, layer);
  layer->matrices.push_back(
      {kUp, Block::kFfn, LeafRule::kReader,
       weights::PlanMatrix(site.Label(kUp), dtype, names.up, names.up_bias,
                           {config.intermediate_size, shard.intermediate}, config.hidden_size,
                           kernels::LeafBorders::Single(config.hidden_size))});
  weights::MatrixPlan down = weights::PlanMatrix(
      site.Label(kDown), dtype, names.down, names.down_bias, config.hidden_size,
      config.intermediate_size, kernels::LeafBorders::ForDown(config.intermediate_size));
  down.KeepLeaves(shard.down_leaves);
  layer->matrices.push_back({kDown, Block::kFfn, LeafRule::kOwn, std::move(down)});
}

// What the activation gives, [rows, intermediate] T.
BlockWorkspace PlainFfnWorkspace(const ModelConfig&, const Shard& shard, tensor::DType dtype,
                                 int64_t rows) {
  const int64_t inputs = shard.intermediate.size();
  return {tensor::BytesOf(dtype, static_cast<uint64_t>(rows * inputs)), inputs};
}

void RunPlainFfn(const BlockContext& context, int64_t layer, int32_t rows) {
  std::byte* const activated = context.activations.ffn;
  const std::byte* const x = BlockInput(context, layer, kFfnNorm, rows);
  LayerLinear(context, layer, kUp, x, activated, rows, kernels::LinearOutput::kErfGelu);
  AddLinear(context, layer, kDown, kFfnPostNorm, activated, rows);
}

}  // namespace

extern const FfnKind kPlainFfn;
const FfnKind kPlainFfn{"plain_ffn", &HasPlainFfn, &PlanPlainFfn, &PlainFfnWorkspace, &RunPlainFfn};

}  // namespace forebay::model
