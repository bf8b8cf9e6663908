#include "kernels/experts.h"

#include <vector>

#include "kernels/linear_sets.h"

namespace forebay::kernels::ref {
namespace {

// All rows of an expert as a dense layer.
void RunEach(const ExpertsArgs& args, const device::WorkerContext& context, LinearFunction linear) {
  const auto element = static_cast<int64_t>(tensor::SizeOf(args.weight.dtype));
  for (int32_t expert = 0; expert < args.num_experts; ++expert) {
    std::vector<const std::byte*> tiles;
    for (int32_t panel = 0; panel < args.weight.num_panels; ++panel)
      tiles.push_back(args.Tile(expert, panel));
    LinearArgs layer;
    layer.weight = args.weight;
    layer.weight.tiles = tiles.data();
    layer.weight.bias = args.Bias(expert);
    layer.x = args.x_rows == nullptr ? args.x + args.FirstX(expert) * element : args.x;
    layer.x_rows = args.x_rows == nullptr ? nullptr : args.x_rows + args.FirstRow(expert);
    layer.x_stride = args.x_stride;
    layer.y = args.y + args.FirstY(expert) * element;
    layer.y_stride = args.y_stride;
    layer.rows = args.RowsOf(expert);
    layer.output = args.output;
    layer.leaf_end = 1;
    linear(layer, context);
  }
}

template <TileOrder kOrder>
void ExpertsInSteps(const ExpertsArgs& args, const device::WorkerContext& context) {
  RunEach(args, context, TileLinear(kOrder));
}

template <MmaOrder kOrder>
void ExpertsByMma(const ExpertsArgs& args, const device::WorkerContext& context) {
  RunEach(args, context, MmaLinear(kOrder));
}

}  // namespace

void Experts(const ExpertsArgs& args, const device::WorkerContext& context) {
  RunEach(args, context, Linear);
}

ExpertsFunction TileExperts(TileOrder order) {
  switch (order) {
    case TileOrder::kSplit: return &ExpertsInSteps<TileOrder::kSplit>;
    case TileOrder::kEvenFirst: return &ExpertsInSteps<TileOrder::kEvenFirst>;
    case TileOrder::kOddFirst: return &ExpertsInSteps<TileOrder::kOddFirst>;
    case TileOrder::kUnknown: break;
  }
  return nullptr;
}

ExpertsFunction MmaExperts(MmaOrder order) {
  return order == MmaOrder::kK16F25 ? &ExpertsByMma<MmaOrder::kK16F25>
                                    : &ExpertsByMma<MmaOrder::kK8F24>;
}

}  // namespace forebay::kernels::ref
