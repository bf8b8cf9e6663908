#include "model/weight_views.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace forebay::model {
namespace {

// What a panel's columns are of the whole model: where its first piece begins.
std::pair<int32_t, int64_t> FirstRow(const weights::MatrixPlan& plan, size_t panel) {
  const weights::PanelPiece& first = plan.PiecesOf(panel).front();
  return {first.tensor, first.row};
}

// The panels of `own` that are those of `view`, in its order.
std::vector<int32_t> PanelsIn(const weights::MatrixPlan& own, const weights::MatrixPlan& view) {
  std::map<std::pair<int32_t, int64_t>, int32_t> by_row;
  const auto width = [](const weights::MatrixPlan& plan, auto panel) {
    return plan.panels()[static_cast<size_t>(panel)].columns.width;
  };
  for (size_t panel = 0; panel < own.panels().size(); ++panel)
    by_row[FirstRow(own, panel)] = static_cast<int32_t>(panel);
  std::vector<int32_t> panels;
  for (size_t panel = 0; panel < view.panels().size(); ++panel) {
    const auto [tensor, row] = FirstRow(view, panel);
    const auto found = by_row.find({tensor, row});
    FB_CHECK(found != by_row.end() && width(own, found->second) == width(view, panel),
             "{}: no panel of the layout begins at row {} of tensor {} with {} columns", view.label,
             row, tensor, width(view, panel));
    panels.push_back(found->second);
  }
  return panels;
}

weights::PlacedWeight ViewExperts(const weights::MatrixPlan& own,
                                  const weights::PlacedWeight& loaded,
                                  const weights::MatrixPlan& view, device::RegionCutter* tables) {
  const weights::PlacedWeight placed = weights::PlaceMatrix(view, tables);
  const int32_t first = view.first_expert - own.first_expert;
  FB_CHECK(first >= 0 && first + view.num_experts <= own.num_experts,
           "{}: experts {} to {} of the layout's {}", view.label, first, first + view.num_experts,
           own.num_experts);
  weights::ForEachRun(placed.weight, view.num_experts, [&](const weights::RunPlace& run) {
    weights::SetRun(placed, run, loaded.runs[first + run.expert]);
  });
  if (placed.weight.bias != nullptr) {
    const int64_t of_expert = int64_t{placed.weight.num_panels} * kernels::kPanelColumns;
    std::copy_n(loaded.weight.bias + first * of_expert, view.num_experts * of_expert,
                const_cast<float*>(placed.weight.bias));  // what PlaceMatrix cut
  }
  return placed;
}

weights::PlacedWeight View(const weights::MatrixPlan& own, const weights::PlacedWeight& given,
                           const weights::MatrixPlan& view, device::RegionCutter* tables) {
  if (view.num_experts > 0) return ViewExperts(own, given, view, tables);
  const kernels::PackedWeight& loaded = given.weight;
  const weights::PlacedWeight placed = weights::PlaceMatrix(view, tables);
  const std::vector<int32_t> panels = PanelsIn(own, view);
  const int first_leaf = view.leaves.leaves_before - own.leaves.leaves_before;
  FB_CHECK(first_leaf >= 0 && first_leaf + view.leaves.num_leaves <= own.leaves.num_leaves,
           "{}: leaves {} to {} of the layout's {}", view.label, first_leaf,
           first_leaf + view.leaves.num_leaves, own.leaves.num_leaves);
  weights::ForEachRun(placed.weight, 0, [&](const weights::RunPlace& run) {
    const int64_t leaf = first_leaf + run.leaf, panel = panels[static_cast<size_t>(run.panel)];
    weights::SetRun(placed, run, loaded.tiles[leaf * loaded.num_panels + panel]);
  });
  if (placed.weight.bias != nullptr) {
    auto* const bias = const_cast<float*>(placed.weight.bias);  // what PlaceMatrix cut
    for (size_t panel = 0; panel < panels.size(); ++panel) {
      std::copy_n(loaded.bias + int64_t{panels[panel]} * kernels::kPanelColumns,
                  kernels::kPanelColumns, bias + panel * kernels::kPanelColumns);
    }
  }
  return placed;
}

}  // namespace

uint64_t ModeTableBytes(const DecoderPlan& mode) {
  uint64_t bytes = 0;
  for (const LayerPlan& layer : mode.layers) {
    for (const PlannedMatrix& matrix : layer.matrices) bytes += matrix.plan.TableBytes();
  }
  return bytes;
}

uint64_t ModeCopyBytes(const DecoderPlan& mode) {
  uint64_t bytes = 0;
  for (const LayerPlan& layer : mode.layers) {
    for (const PlannedMatrix& matrix : layer.matrices) bytes += matrix.plan.TileBytes();
  }
  return bytes;
}

base::Result<DecoderWeights> ModeWeights(const DecoderPlan& mode, ModeSource* source) {
  DecoderWeights of_mode = source->loaded;
  of_mode.shard = mode.shard;
  std::vector<weights::PlacedMatrix> copied;
  for (size_t layer = 0; layer < mode.layers.size(); ++layer) {
    for (size_t m = 0; m < mode.layers[layer].matrices.size(); ++m) {
      const weights::MatrixPlan& plan = mode.layers[layer].matrices[m].plan;
      LoadedMatrix& matrix = of_mode.layers[layer].matrices[m];
      matrix.pooled = false;
      if (!source->copies) {
        matrix.placed =
            View(source->own.layers[layer].matrices[m].plan, matrix.placed, plan, &source->tables);
        continue;
      }
      matrix.placed = weights::PlaceMatrix(plan, &source->tables);
      copied.push_back({&plan, matrix.placed});
      weights::ForEachRun(matrix.placed.weight, matrix.placed.num_experts,
                          [&](const weights::RunPlace& run) {
                            weights::SetRun(matrix.placed, run, source->copies->Cut(run.bytes));
                          });
    }
  }
  if (source->reader != nullptr && !copied.empty())
    FB_RETURN_IF_ERROR(
        weights::LoadMatrices(*source->reader, copied, source->num_threads, source->device));
  return of_mode;
}

}  // namespace forebay::model
