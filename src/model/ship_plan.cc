#include "model/ship_plan.h"

#include <algorithm>

#include "fabric/collectives.h"
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

}  // namespace

base::Result<std::vector<ShipPlan>> PlanShip(const ShipOptions& options, const std::vector<ShipMember>& stage) {
  const PoolPlan& pool = *stage[0].pool;
  const DecoderPlan& decoder = *stage[0].decoder;
  ShipPlan shared{.options = options, .num_ranks = pool.num_ranks, .tp = static_cast<int>(stage.size()),
                  .num_leaves = decoder.layers[0].down.leaves.tree_leaves()};
  shared.leaves.resize(decoder.layers.size());
  if (options.gather) {
    shared.rows_bytes = fabric::Exchange::StagingBytes(1);  // they meet with nothing to say
    return std::vector<ShipPlan>(stage.size(), shared);
  }
  if (shared.num_members() > fabric::Exchange::kMaxRanks) {
    return base::Status(kCannotShip, fmt::format("{} replicas of {} ranks would meet; expected at most {} ranks", shared.num_ranks,
                                                 shared.tp, fabric::Exchange::kMaxRanks));
  }
  if (pool.options.attention) {
    return base::Status(kCannotShip, "rows are shipped to the owners of FFNs alone; expected pool-attention=off");
  }
  for (size_t layer = 0; layer < shared.leaves.size(); ++layer) {
    if (pool.book->group().pool_index[layer] < 0) continue;
    int64_t owned = 0;
    int planes = 0, owners = 0;
    for (const ShipMember& member : stage) {
      const int before = member.decoder->layers[layer].down.leaves.leaves_before;
      for (int rank = 0; rank < shared.num_ranks; ++rank) {
        const base::Part own = LeavesOf(*member.pool->book, rank, static_cast<int64_t>(layer));
        const base::Part part{before + own.begin, before + own.end};
        const int count = kernels::NumPlanes(shared.num_leaves, static_cast<int>(part.begin), static_cast<int>(part.end));
        shared.leaves[layer].push_back(part);
        shared.max_planes = std::max(shared.max_planes, count);
        planes += count;
        owned += part.size();
        owners += part.size() > 0 && &member == &stage[0];
      }
    }
    shared.total_planes = std::max(shared.total_planes, planes);
    shared.max_owners = std::max(shared.max_owners, owners);
    if (owned == shared.num_leaves) continue;
    return base::Status(kCannotShip, fmt::format("weights={} over {} ranks leaves {} of {} leaves of layer {} without an owner that "
                                                 "could compute with them; expected weights=by_layer or striped",
                                                 pool.options.placement, shared.num_ranks, shared.num_leaves - owned, shared.num_leaves,
                                                 layer));
  }
  const auto hidden = static_cast<uint64_t>(decoder.config.hidden_size);
  const auto rows = static_cast<uint64_t>(options.rows);
  shared.rows_bytes = fabric::Exchange::StagingBytes(tensor::BytesOf(decoder.dtype, rows * hidden));
  shared.sums_bytes = fabric::Exchange::StagingBytes(static_cast<uint64_t>(shared.max_planes * shared.gathered_rows()) * hidden * sizeof(float));
  std::vector<ShipPlan> plans(stage.size(), shared);
  for (size_t t = 0; t < stage.size(); ++t) {
    const LayerPlan& layer = stage[t].decoder->layers[0];
    plans[t].tp_rank = static_cast<int>(t);
    plans[t].leaves_before = layer.down.leaves.leaves_before;
    plans[t].panel_of_leaf = PanelsOfLeaves(layer);
  }
  return plans;
}

}  // namespace forebay::model
