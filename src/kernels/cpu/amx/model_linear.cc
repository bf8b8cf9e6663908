// The loop of class `amx` around tiles in plain C++, for machines that have none.
#include "kernels/cpu/amx/model_tiles.h"
#include "kernels/expand.h"

namespace forebay::kernels {
namespace {
constexpr ExpandFunction kExpand = &avx2::Expand;
}  // namespace
}  // namespace forebay::kernels

#include "kernels/cpu/amx/tile_loop.h"

namespace forebay::kernels {
namespace {

template <TileOrder kOrder>
void LinearOnModel(const LinearArgs& args, const device::WorkerContext& context) {
  if (args.weight.dtype != tensor::DType::kBF16 || IsInt8(args.weight))
    return avx2::Linear(args, context);
  RunTileLinear<ModelTiles<kOrder>>(args, context);
}

template <TileOrder kOrder>
void ExpertsOnModel(const ExpertsArgs& args, const device::WorkerContext& context) {
  if (args.weight.dtype != tensor::DType::kBF16 || IsInt8(args.weight))
    return avx2::Experts(args, context);
  RunTileExperts<ModelTiles<kOrder>>(args, context);
}

}  // namespace

namespace amx {

LinearFunction LinearOnModelTiles(TileOrder order) {
  switch (order) {
    case TileOrder::kSplit: return &LinearOnModel<TileOrder::kSplit>;
    case TileOrder::kEvenFirst: return &LinearOnModel<TileOrder::kEvenFirst>;
    case TileOrder::kOddFirst: return &LinearOnModel<TileOrder::kOddFirst>;
    case TileOrder::kUnknown: break;
  }
  return nullptr;
}

ExpertsFunction ExpertsOnModelTiles(TileOrder order) {
  switch (order) {
    case TileOrder::kSplit: return &ExpertsOnModel<TileOrder::kSplit>;
    case TileOrder::kEvenFirst: return &ExpertsOnModel<TileOrder::kEvenFirst>;
    case TileOrder::kOddFirst: return &ExpertsOnModel<TileOrder::kOddFirst>;
    case TileOrder::kUnknown: break;
  }
  return nullptr;
}

}  // namespace amx
}  // namespace forebay::kernels
