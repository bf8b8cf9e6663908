#include "model/ship_plan.h"

#include <algorithm>

#include "cost/model.h"
#include "fabric/collectives.h"
#include "kernels/number_format.h"
#include "kernels/reduce.h"

namespace forebay::model {
namespace {

// The leaves of which the rank owns every tile. Empty if these are not one behind the other.
base::Part LeavesOf(const weights::PoolBook& book, int rank, int64_t layer) {
  const weights::LayerTiles& tiles = book.group().layer;
  std::vector<bool> owned(static_cast<size_t>(tiles.num_leaves), true);
  for (int64_t tile = 0; tile < static_cast<int64_t>(tiles.tiles.size()); ++tile) {
    if (book.OffsetOf(rank, {layer, tile}) == weights::PoolBook::kNotHeld) owned[tiles.tiles[tile].leaf] = false;
  }
  const auto first = std::ranges::find(owned, true), last = std::find(first, owned.end(), false);
  if (std::count(last, owned.end(), true) > 0) return {};
  return {first - owned.begin(), last - owned.begin()};
}

std::vector<int32_t> PanelsOfLeaves(const LayerPlan& layer) {
  const kernels::LeafBorders& leaves = layer.down.leaves;
  std::vector<int32_t> first;
  for (int leaf = 0; leaf <= leaves.num_leaves; ++leaf) {
    const auto before = [&](const auto& panel) { return panel.columns.column < leaves.begin[leaf]; };
    first.push_back(static_cast<int32_t>(std::ranges::count_if(layer.gate_up.panels, before)));
  }
  return first;
}

double LinearSeconds(const weights::MatrixPlan& matrix, int64_t rows, int64_t outputs, int64_t depth, const cost::DeviceProfile& profile) {
  cost::OpDesc desc{.kind = cost::OpKind::kLinear, .rows = rows, .columns = outputs, .depth = depth,
                    .flops = 2.0 * static_cast<double>(rows * outputs * depth),
                    .weight_format = kernels::NumberFormatOf(matrix.Geometry().dtype)};
  return cost::Price(desc, profile).seconds;
}

// Of a step's matrices and attention; what is small beside them only makes it longer. The FFN is computed over `ffn_rows`, in
// one of `parts` equal parts.
double StepSeconds(const DecoderPlan& decoder, int64_t rows, int64_t ffn_rows, int64_t parts, int64_t context,
                   const cost::DeviceProfile& profile) {
  const ModelConfig& config = decoder.config;
  const LayerPlan& layer = decoder.layers[0];
  cost::OpDesc attention{.kind = cost::OpKind::kAttention, .rows = rows, .depth = rows * context,
                         .heads = static_cast<int>(config.num_heads), .kv_heads = static_cast<int>(config.num_kv_heads),
                         .head_dim = static_cast<int>(config.head_dim), .kv_format = kernels::NumberFormatOf(decoder.dtype)};
  attention.flops = 4.0 * static_cast<double>(config.num_heads * config.head_dim * attention.depth);
  attention.read_bytes = 2.0 * static_cast<double>(config.num_kv_heads * config.head_dim * attention.depth) *
                         static_cast<double>(tensor::SizeOf(decoder.dtype));
  double seconds = cost::Price(attention, profile).seconds;
  const kernels::PackedWeight gate_up = layer.gate_up.Geometry(), down = layer.down.Geometry();
  for (const weights::MatrixPlan* matrix : {&layer.qkv, &layer.output}) {
    seconds += LinearSeconds(*matrix, rows, matrix->Geometry().n, matrix->Geometry().k, profile);
  }
  seconds += LinearSeconds(layer.gate_up, ffn_rows, 2 * gate_up.n / parts, gate_up.k, profile) +
             LinearSeconds(layer.down, ffn_rows, down.n, down.k / parts, profile);
  return seconds * static_cast<double>(decoder.layers.size()) +
         LinearSeconds(decoder.head, rows, decoder.head.Geometry().n, decoder.head.Geometry().k, profile) + profile.step_overhead_s;
}

}  // namespace

base::Result<ShipPlan> PlanShip(const ShipOptions& options, const PoolPlan& pool, const DecoderPlan& decoder) {
  ShipPlan plan{.options = options, .num_ranks = pool.num_ranks, .num_leaves = decoder.layers[0].down.leaves.num_leaves};
  plan.panel_of_leaf = PanelsOfLeaves(decoder.layers[0]);
  plan.leaves.resize(decoder.layers.size());
  if (options.gather) {
    plan.rows_bytes = fabric::Exchange::StagingBytes(1);  // they meet with nothing to say
    return plan;
  }
  if (decoder.shard.cut.tp > 1) {
    return base::Status(kCannotShip, fmt::format("rows are shipped between whole layers; expected tp=1, not {}", decoder.shard.cut.tp));
  }
  if (pool.options.attention) {
    return base::Status(kCannotShip, "rows are shipped to the owners of FFNs alone; expected pool-attention=off");
  }
  for (size_t layer = 0; layer < plan.leaves.size(); ++layer) {
    if (pool.book->group().pool_index[layer] < 0) continue;
    int64_t owned = 0;
    int planes = 0;
    for (int rank = 0; rank < plan.num_ranks; ++rank) {
      const base::Part part = LeavesOf(*pool.book, rank, static_cast<int64_t>(layer));
      const int own = kernels::NumPlanes(plan.num_leaves, static_cast<int>(part.begin), static_cast<int>(part.end));
      plan.leaves[layer].push_back(part);
      plan.max_planes = std::max(plan.max_planes, own);
      planes += own;
      owned += part.size();
    }
    plan.total_planes = std::max(plan.total_planes, planes);
    if (owned == plan.num_leaves) continue;
    return base::Status(kCannotShip, fmt::format("weights={} over {} ranks leaves {} of {} leaves of layer {} without an owner that "
                                                 "could compute with them; expected weights=by_layer or striped",
                                                 pool.options.placement, plan.num_ranks, plan.num_leaves - owned, plan.num_leaves,
                                                 layer));
  }
  const auto hidden = static_cast<uint64_t>(decoder.config.hidden_size);
  const auto rows = static_cast<uint64_t>(options.rows);
  plan.rows_bytes = fabric::Exchange::StagingBytes(tensor::BytesOf(decoder.dtype, rows * hidden));
  plan.sums_bytes = fabric::Exchange::StagingBytes(static_cast<uint64_t>(plan.max_planes * plan.gathered_rows()) * hidden * sizeof(float));
  return plan;
}

double ShipThreshold(const ShipPlan& plan, const PoolPlan& pool, const DecoderPlan& decoder, const cost::DeviceProfile& profile,
                     int64_t context) {
  const cost::OpDesc fetch{.kind = cost::OpKind::kCopy, .read_bytes = static_cast<double>(pool.book->StepBytes(pool.rank)),
                           .link = cost::Link::kPeer};
  const double seconds = cost::Price(fetch, profile).seconds;
  const int64_t ranks = plan.options.gather ? 1 : plan.num_ranks;
  const int64_t parts = plan.total_planes > plan.max_planes ? ranks : 1;  // owners of a layer
  const auto pulls = [&](int64_t rows) {
    return std::max(StepSeconds(decoder, rows, rows, 1, context, profile),
                    StepSeconds(decoder, rows, ranks * rows, parts, context, profile)) >= seconds;
  };
  int64_t pulled = 1 << 20, shipped = 0;  // rows of steps that pull, and that ship
  while (pulled - shipped > 1) {
    const int64_t middle = shipped + (pulled - shipped) / 2;
    (pulls(middle) ? pulled : shipped) = middle;
  }
  return static_cast<double>(pulled);
}

}  // namespace forebay::model
