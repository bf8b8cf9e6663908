// The loop of classes `amx_*_p1024` around tiles in plain C++, for machines that have none.
#include "kernels/attention.h"
#include "kernels/cpu/amx/attention_loop.h"
#include "kernels/cpu/amx/model_tiles.h"
#include "kernels/sets.h"

namespace forebay::kernels {
namespace {

template <TileOrder kOrder>
void AttentionOnModel(const AttentionArgs& args, const device::WorkerContext& context) {
  if (args.layout.dtype == tensor::DType::kF32) return avx2::Attention(args, context);
  AttendOnTiles<ModelTiles<kOrder>>(args, context);
}

}  // namespace

namespace amx {

AttentionFunction AttentionOnModelTiles(TileOrder order) {
  switch (order) {
    case TileOrder::kSplit: return &AttentionOnModel<TileOrder::kSplit>;
    case TileOrder::kEvenFirst: return &AttentionOnModel<TileOrder::kEvenFirst>;
    case TileOrder::kOddFirst: return &AttentionOnModel<TileOrder::kOddFirst>;
    case TileOrder::kUnknown: break;
  }
  return nullptr;
}

}  // namespace amx
}  // namespace forebay::kernels
