// The loop of class `amx` around tiles in plain C++, for machines that have none.
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
class ModelTiles {
 public:
  explicit ModelTiles(int x_rows) : x_rows_(x_rows) {}
  void Release() {}

  template <int kTile>
  void Zero() {
    __builtin_memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }
  template <int kTile>
  void Load(const void* rows, int64_t stride) {
    for (int r = 0; r < RowsOf(kTile); ++r)
      __builtin_memcpy(tiles_[kTile][r], static_cast<const std::byte*>(rows) + r * stride, 64);
  }
  template <int kTile>
  void Store(float* rows, int64_t stride) const {
    for (int r = 0; r < RowsOf(kTile); ++r)
      __builtin_memcpy(reinterpret_cast<std::byte*>(rows) + r * stride, tiles_[kTile][r], 64);
  }
  template <int kSum, int kX, int kW>
  void MultiplyAdd() {
    static_assert(kSum < 4 && kX >= 4 && kW >= 5);
    for (int column = 0; column < 16; ++column) {
      BF16 w[kTileDepth];
      for (int pair = 0; pair < kStepPairs; ++pair)
        __builtin_memcpy(w + 2 * pair, tiles_[kW][pair] + 4 * column, 4);
      for (int row = 0; row < RowsOf(kSum); ++row) {
        float sum;
        std::byte* const at = tiles_[kSum][row] + 4 * column;
        __builtin_memcpy(&sum, at, 4);
        sum = ref::TileStep(kOrder, reinterpret_cast<const BF16*>(tiles_[kX][row]), w, sum);
        __builtin_memcpy(at, &sum, 4);
      }
    }
  }

 private:
  int RowsOf(int tile) const { return tile < 5 ? x_rows_ : 16; }

  alignas(64) std::byte tiles_[8][16][64];
  int x_rows_;
};

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
