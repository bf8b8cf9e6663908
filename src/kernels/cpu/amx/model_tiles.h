// Tiles in plain C++ that sum in a given order, for the loops of this folder on machines that have
// none.
#pragma once

#include <cstddef>

#include "kernels/cpu/simd.h"
#include "kernels/ref/tile.h"
#include "kernels/tile_order.h"

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
    const BF16* const w = reinterpret_cast<const BF16*>(tiles_[kW]);
    for (int row = 0; row < RowsOf(kSum); ++row) {
      float sums[16];
      __builtin_memcpy(sums, tiles_[kSum][row], 64);
      ref::AddTileStep(kOrder, reinterpret_cast<const BF16*>(tiles_[kX][row]), w, 16, sums);
      __builtin_memcpy(tiles_[kSum][row], sums, 64);
    }
  }

 private:
  int RowsOf(int tile) const { return tile < 5 ? x_rows_ : 16; }

  alignas(64) std::byte tiles_[8][16][64];
  int x_rows_;
};

}  // namespace
}  // namespace forebay::kernels
