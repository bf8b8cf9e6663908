#include "share/pool_plan.h"

#include <algorithm>
#include <utility>

namespace forebay::share {
namespace {

using model::LayerPlan;
using model::LeafRule;
using model::PlannedMatrix;

weights::TensorKind TensorsOf(const LayerPlan& layer) {
  const bool experts = std::ranges::any_of(
      layer.matrices, [](const PlannedMatrix& matrix) { return matrix.num_experts() > 0; });
  return experts ? weights::TensorKind::kExperts : weights::TensorKind::kDense;
}

// Whether the matrix is among those that ranks share where they share the layer: a layer has one
// placement, and where it has experts, this is theirs.
bool CanPool(const PoolOptions& options, weights::TensorKind layer, const PlannedMatrix& matrix) {
  if (layer == weights::TensorKind::kExperts) return matrix.num_experts() > 0;
  return (options.attention && !matrix.kept) || matrix.block == model::Block::kFfn;
}

// The leaves of the layer's feed-forward block.
kernels::LeafBorders LeavesOf(const LayerPlan& layer) {
  const auto own = std::ranges::find(layer.matrices, LeafRule::kOwn, &PlannedMatrix::leaf_rule);
  return own == layer.matrices.end() ? kernels::LeafBorders{} : own->plan.leaves;
}

int32_t LeafOf(const kernels::LeafBorders& leaves, const PlannedMatrix& matrix,
               const weights::RunPlace& run) {
  if (matrix.num_experts() > 0) return run.expert;
  const std::vector<weights::PanelPlan>& panels = matrix.plan.panels();
  switch (matrix.leaf_rule) {
    case LeafRule::kOwn: return run.leaf;
    case LeafRule::kReader: {
      int32_t leaf = 0;
      while (leaf + 1 < leaves.num_leaves &&
             leaves.begin[leaf + 1] <= panels[run.panel].columns.column)
        ++leaf;
      return leaf;
    }
    case LeafRule::kEven: break;
  }
  const auto num_panels = static_cast<int64_t>(panels.size());
  const int64_t at = run.leaf * num_panels + run.panel,
                count = matrix.plan.leaves.num_leaves * num_panels;
  return static_cast<int32_t>(at * leaves.num_leaves / count);
}

// The runs of a layer's matrices that may be pooled.
weights::LayerRuns RunsOf(const LayerPlan& layer, const PoolOptions& options) {
  weights::LayerRuns layer_runs{.tensors = TensorsOf(layer)};
  const auto take = [&](const PlannedMatrix& matrix) {
    return CanPool(options, layer_runs.tensors, matrix);
  };
  const kernels::LeafBorders leaves = LeavesOf(layer);
  layer_runs.num_leaves = leaves.num_leaves;
  const PlannedMatrix* last = nullptr;
  int32_t matrices = 0;
  model::ForEachRun(layer, take, [&](const PlannedMatrix& matrix, const weights::RunPlace& run) {
    if (std::exchange(last, &matrix) != &matrix) ++matrices;
    if (matrix.num_experts() > 0) layer_runs.num_leaves = matrix.num_experts();
    layer_runs.Add(run.bytes, LeafOf(leaves, matrix, run), options.by_matrix ? matrices - 1 : 0);
  });
  layer_runs.num_pieces = options.by_matrix ? matrices : 1;
  return layer_runs;
}

// Whether the layers' matrices have the same tiles, and so the same runs.
bool AreAlike(const LayerPlan& layer, const LayerPlan& other) {
  return std::ranges::equal(layer.matrices, other.matrices,
                            [](const PlannedMatrix& a, const PlannedMatrix& b) {
                              return a.block == b.block && a.leaf_rule == b.leaf_rule &&
                                     a.kept == b.kept && a.plan.HasTilesOf(b.plan);
                            });
}

// What only experts that are pulled a layer at a time can have.
base::Status CheckExperts(const PoolOptions& options) {
  if (!options.waits_by_part && !options.merges_experts) return {};
  const std::string flag = options.merges_experts ? "--expert-merge" : "--pool-wait part",
                    found = !options.experts.pools() ? "experts=" + options.experts.text()
                            : options.by_matrix      ? "--pool-parts matrix"
                            : options.waits_by_part && options.merges_experts ? "--pool-wait part"
                                                                              : "";
  if (found.empty()) return {};
  return {base::kInvalidArgument,
          fmt::format("{} with {}; expected experts=by_expert, pulled by layers, and one of "
                      "--expert-merge and --pool-wait part",
                      flag, found)};
}

}  // namespace

base::Result<std::vector<PoolPlan>> PlanPools(const PoolOptions& options, int num_members,
                                              const model::DecoderPlan& decoder) {
  FB_RETURN_IF_ERROR(CheckExperts(options));
  PoolPlan shared{.options = options, .num_members = num_members};
  weights::PlacementGroup group{.num_members = num_members};
  std::vector<bool> dense_layers, expert_layers;
  std::vector<size_t> unlike;  // the first layers of which no other is alike
  for (size_t layer = 0; layer < decoder.layers.size(); ++layer) {
    const auto alike = std::ranges::find_if(unlike, [&](size_t other) {
      return AreAlike(decoder.layers[layer], decoder.layers[other]);
    });
    if (alike != unlike.end()) {
      group.kind_of.push_back(group.kind_of[*alike]);
    } else {
      unlike.push_back(layer);
      weights::LayerRuns runs = RunsOf(decoder.layers[layer], options);
      const auto kind = std::ranges::find(group.kinds, runs);
      group.kind_of.push_back(static_cast<int32_t>(kind - group.kinds.begin()));
      if (kind == group.kinds.end()) group.kinds.push_back(std::move(runs));
    }
    const weights::LayerRuns& runs = group.layer(static_cast<int64_t>(layer));
    const bool has_experts = runs.tensors == weights::TensorKind::kExperts;
    dense_layers.push_back(!has_experts && !runs.runs.empty());
    expert_layers.push_back(has_experts && options.experts.pools());
  }
  if (const auto most = std::ranges::count(dense_layers, true); options.layers > most) {
    return base::Status(
        base::kInvalidArgument,
        fmt::format("{} layers are to be pooled with weights={}, and {} of {} "
                    "layers have dense matrices to pool",
                    options.layers, options.placement.text(), most, dense_layers.size()));
  }
  group.pool_index = weights::SpreadPool(dense_layers, options.layers);
  int32_t pooled = 0;
  uint64_t table_bytes = 0;  // of a phase
  for (size_t layer = 0; layer < decoder.layers.size(); ++layer) {
    if (group.pool_index[layer] < 0 && !expert_layers[layer]) continue;
    group.pool_index[layer] = pooled++;
    const weights::LayerRuns& runs = group.layer(static_cast<int64_t>(layer));
    const auto matrices = std::ranges::count_if(
        decoder.layers[layer].matrices,
        [&](const PlannedMatrix& matrix) { return CanPool(options, runs.tensors, matrix); });
    table_bytes += runs.runs.size() * sizeof(void*) + 64 * static_cast<uint64_t>(matrices);
    if (options.merges_experts && expert_layers[layer])
      shared.merge_bytes = std::max(shared.merge_bytes, runs.bytes());
  }
  const std::shared_ptr<const weights::Placement> placement =
      weights::PlaceByKind(options.placement.Make(), options.experts.Make());
  FB_RETURN_IF_ERROR(placement->Check(group));
  shared.book = std::make_shared<weights::PoolBook>(placement, std::move(group));
  std::vector<PoolPlan> plans(num_members, shared);
  // Memory is divided for the rank whose order needs most slots, so that all may have them.
  weights::SlotSettings settings = options.slots;
  for (int member = 0; member < num_members; ++member) {
    settings.least = std::max(settings.least,
                              weights::PoolSchedule::MinSlots(*shared.book, member, options.order));
  }
  for (int member = 0; member < num_members; ++member) {
    PoolPlan& plan = plans[member];
    plan.member = member;
    FB_ASSIGN_OR_RETURN(const int64_t slots,
                        weights::ChooseSlots(*plan.book, member, options.order, settings));
    FB_ASSIGN_OR_RETURN(auto schedule,
                        weights::PoolSchedule::Create(*plan.book, member, options.order, slots));
    plan.schedule = std::make_shared<weights::PoolSchedule>(std::move(schedule));
    plan.pool_bytes = plan.book->held_bytes(member);
    plan.slot_bytes = base::RoundUp(plan.book->SlotBytes(member), 64);
    plan.table_bytes = static_cast<uint64_t>(plan.schedule->num_phases()) * table_bytes;
  }
  return plans;
}

void MarkPooled(const PoolPlan& pool, model::DecoderPlan* decoder) {
  for (size_t layer = 0; layer < decoder->layers.size(); ++layer) {
    const weights::PlacementGroup& group = pool.book->group();
    const bool pooled = group.pool_index[layer] >= 0;
    const weights::TensorKind tensors = group.layer(static_cast<int64_t>(layer)).tensors;
    for (PlannedMatrix& matrix : decoder->layers[layer].matrices)
      matrix.pooled = pooled && CanPool(pool.options, tensors, matrix);
  }
}

uint64_t PooledBytes(const PoolPlan& pool, const model::DecoderPlan& decoder) {
  const weights::PlacementGroup& group = pool.book->group();
  uint64_t sum = 0;
  for (int64_t layer = 0; layer < static_cast<int64_t>(decoder.layers.size()); ++layer) {
    if (group.pool_index[layer] >= 0) sum += group.layer(layer).bytes();
  }
  return sum;
}

model::PooledRunAt OwnRuns(const PoolPlan& pool, const device::Region& region) {
  return [book = pool.book, member = pool.member, data = region.data](int64_t layer, int64_t run) {
    const uint64_t offset = book->OffsetOf(member, {layer, run});
    return offset == weights::PoolBook::kNotHeld ? nullptr : data + offset;
  };
}

}  // namespace forebay::share
