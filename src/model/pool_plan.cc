#include "model/pool_plan.h"

#include <algorithm>

namespace forebay::model {
namespace {

// The tiles of the pooled matrices of a layer, in the order in which PlaceMatrix lays them. A column of gate and up
// belongs to the leaf of the down projection that reads it; attention's tiles are dealt evenly over these leaves.
weights::LayerTiles TilesOf(const LayerPlan& layer, const std::vector<LayerMatrix>& matrices, bool by_matrix) {
  weights::LayerTiles tiles;
  const kernels::LeafBorders& leaves = layer.down.leaves;
  const auto leaf_of_column = [&](int32_t column) {
    int32_t leaf = 0;
    while (leaf + 1 < leaves.num_leaves && leaves.begin[leaf + 1] <= column) ++leaf;
    return leaf;
  };
  for (size_t m = 0; m < matrices.size(); ++m) {
    const weights::MatrixPlan& plan = layer.matrix(matrices[m]);
    const kernels::PackedWeight geometry = plan.Geometry();
    for (int leaf = 0; leaf < geometry.leaves.num_leaves; ++leaf) {
      for (int32_t panel = 0; panel < geometry.num_panels; ++panel) {
        int32_t owner = leaf;
        if (matrices[m] == LayerMatrix::kGateUp) {
          owner = leaf_of_column(plan.panels[panel].columns.column);
        } else if (matrices[m] != LayerMatrix::kDown) {
          const int64_t at = int64_t{leaf} * geometry.num_panels + panel, count = int64_t{geometry.leaves.num_leaves} * geometry.num_panels;
          owner = static_cast<int32_t>(at * leaves.num_leaves / count);
        }
        tiles.tiles.push_back({static_cast<uint64_t>(geometry.TileBytes(leaf)), owner, by_matrix ? static_cast<int32_t>(m) : 0});
      }
    }
  }
  tiles.num_leaves = leaves.num_leaves;
  tiles.num_pieces = by_matrix ? static_cast<int32_t>(matrices.size()) : 1;
  return tiles;
}

}  // namespace

base::Result<std::vector<PoolPlan>> PlanPools(const PoolOptions& options, int num_ranks, const DecoderPlan& decoder) {
  FB_ASSIGN_OR_RETURN(const weights::Placement* placement, weights::FindPlacement(options.placement));
  PoolPlan shared{.options = options, .num_ranks = num_ranks};
  if (options.attention) shared.matrices = {LayerMatrix::kQkv, LayerMatrix::kOutput};
  shared.matrices.insert(shared.matrices.end(), {LayerMatrix::kGateUp, LayerMatrix::kDown});

  weights::PlacementGroup group{.num_ranks = num_ranks};
  group.pool_index = weights::SpreadPool(static_cast<int64_t>(decoder.layers.size()), options.layers);
  group.layer = TilesOf(decoder.layers[0], shared.matrices, options.by_matrix);
  const auto tiles = static_cast<uint64_t>(group.layer.tiles.size());
  shared.book = std::make_shared<weights::PoolBook>(*placement, std::move(group));
  std::vector<PoolPlan> plans(num_ranks, shared);
  // Memory is divided for the rank whose order needs most slots, so that all may have them.
  weights::SlotSettings settings = options.slots;
  for (int rank = 0; rank < num_ranks; ++rank) {
    settings.least = std::max(settings.least, weights::PoolSchedule::MinSlots(*shared.book, rank, options.order));
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    PoolPlan& plan = plans[rank];
    plan.rank = rank;
    FB_ASSIGN_OR_RETURN(const int64_t slots, weights::ChooseSlots(*plan.book, rank, options.order, settings));
    FB_ASSIGN_OR_RETURN(auto schedule, weights::PoolSchedule::Create(*plan.book, rank, options.order, slots));
    plan.schedule = std::make_shared<weights::PoolSchedule>(std::move(schedule));
    plan.pool_bytes = plan.book->held_bytes(rank);
    plan.slot_bytes = base::RoundUp(plan.book->SlotBytes(rank), 64);
    plan.table_bytes = static_cast<uint64_t>(options.layers * plan.schedule->num_phases()) *
                       (tiles * sizeof(void*) + 64 * plan.matrices.size());
  }
  return plans;
}

void MarkPooled(const PoolPlan& pool, DecoderPlan* decoder) {
  for (size_t layer = 0; layer < decoder->layers.size(); ++layer) {
    const bool pooled = pool.book->group().pool_index[layer] >= 0;
    decoder->layers[layer].ffn_pooled = pooled;
    decoder->layers[layer].attention_pooled = pooled && pool.options.attention;
  }
}

uint64_t PooledBytes(const PoolPlan& pool, const DecoderPlan& decoder) {
  uint64_t sum = 0;
  for (size_t layer = 0; layer < decoder.layers.size(); ++layer) {
    if (pool.book->group().pool_index[layer] < 0) continue;
    for (const LayerMatrix matrix : pool.matrices) sum += decoder.layers[layer].matrix(matrix).TileBytes();
  }
  return sum;
}

}  // namespace forebay::model
