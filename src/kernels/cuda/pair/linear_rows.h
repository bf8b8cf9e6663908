// What linear kernels of every class share: which rows a block has, the tree over leaves, and what
// becomes of an output's sum (kernels/linear.h, kernels/experts.h).
#pragma once

#include "kernels/cuda/pair/arithmetic.h"

namespace forebay::kernels::cuda {

inline constexpr int kColumnsOfPanel = 64;
// LinearOutput's values.
enum : int32_t {
  kOutF32,
  kOutRounded,
  kOutResidual,
  kOutSiluMul,
  kOutPartial,
  kOutGeluMul,
  kOutClampedSiluMul,
  kOutErfGelu,
  kOutErfGeluMul,
  kOutReluSquared
};
// Whether the panel's first half is gate columns, and the second the up projection's.
FB_DEVICE bool IsGatedOutput(int32_t output) {
  return output == kOutSiluMul || output == kOutGeluMul || output == kOutClampedSiluMul ||
         output == kOutErfGeluMul;
}

// What block x computes: rows of an expert from `first` on, at most kRows of them.
struct RowTile {
  int32_t expert = 0, first = 0, rows = 0;  // rows of the expert; 0: nothing
};
template <int kRows>
FB_DEVICE RowTile FindTile(const LinearParams& args) {
  int tile = gpu::BlockX();
  if (args.offsets == nullptr) {
    const int tiles = (args.rows + kRows - 1) / kRows;
    return {tile / tiles, tile % tiles * kRows, args.rows};
  }
  for (int32_t expert = 0; expert < args.num_experts; ++expert) {
    const int32_t rows = args.offsets[expert + 1] - args.offsets[expert];
    const int tiles = (rows + kRows - 1) / kRows;
    if (tile < tiles) return {expert, tile * kRows, rows};
    tile -= tiles;
  }
  return {};
}

// The rows of the experts before the tile's.
FB_DEVICE int32_t RowsBefore(const LinearParams& args, const RowTile& tile) {
  return args.offsets != nullptr ? args.offsets[tile.expert] : 0;
}
// Row `row` of the tile's expert in x; behind the last row, that one.
template <typename T>
FB_DEVICE const T* RowOfX(const LinearParams& args, const RowTile& tile, int32_t row) {
  const int32_t there = RowsBefore(args, tile) + (row < tile.rows ? row : tile.rows - 1);
  const int64_t x_row = args.x_rows == nullptr ? there : args.x_rows[there];
  return As<T>(args.x) + tile.expert * (args.offsets != nullptr ? 0 : args.x_step) +
         x_row * args.x_stride;
}
FB_DEVICE const std::byte* TileOf(const LinearParams& args, const RowTile& tile, int32_t leaf) {
  const int panel = gpu::BlockY();
  if (args.runs != nullptr) return args.runs[tile.expert] + panel * args.tile_bytes;
  return args.tiles[(tile.expert * args.num_leaves + leaf) * args.num_panels + panel];
}
// The bias of the panel's columns. REQUIRES: there is one.
FB_DEVICE const float* BiasOf(const LinearParams& args, const RowTile& tile) {
  return args.bias + (int64_t{tile.expert} * args.num_panels + gpu::BlockY()) * kColumnsOfPanel;
}

// The sums of a node's leaves in the tree; chain(leaf, sums) are those of one.
template <int kSums, typename Chain>
FB_DEVICE void NodeSum(const LeafNode& node, Chain chain, float (&sums)[kSums]) {
  constexpr int kDepth = 4;  // pending nodes of a tree of 8 leaves
  float pending[kDepth][kSums];
  int top = 0;
  for (int32_t i = 0; i < node.count; ++i) {
    chain(node.first + i, sums);
    // A leaf's number has a bit for each node that it ends; behind the last all that are left.
    const bool last = i + 1 == node.count;
    for (int32_t bits = i; top > 0 && (last || (bits & 1)); bits >>= 1) {
      --top;
      for (int r = 0; r < kSums; ++r) sums[r] = pending[top][r] + sums[r];
    }
    if (last) return;
    for (int r = 0; r < kSums; ++r) pending[top][r] = sums[r];
    ++top;
  }
}

// What becomes of a sum, before it is rounded. `up`: of a gate, the sum of its up projection;
// `old`: what kResidual adds.
FB_DEVICE float OutputOf(int32_t output, float sum, float up, float old) {
  switch (output) {
    case kOutResidual: return sum + old;
    case kOutSiluMul: return SiluOf(sum) * up;
    case kOutGeluMul: return GeluOf(sum) * up;
    case kOutClampedSiluMul: return ClampedSiluOf(sum) * ClampedUpOf(up);
    case kOutErfGelu: return ErfGeluOf(sum);
    case kOutErfGeluMul: return ErfGeluOf(sum) * up;
    case kOutReluSquared: {
      const float above = sum < 0 ? 0.0f : sum;
      return above * above;
    }
    default: return sum;
  }
}
// Writes it as element `at` of y.
template <typename T>
FB_DEVICE void StoreSum(int32_t output, std::byte* y, int64_t at, float sum, float up) {
  if (output == kOutF32 || output == kOutPartial) {
    As<float>(y)[at] = sum;
    return;
  }
  T* const to = As<T>(y) + at;
  *to = RoundTo<T>(OutputOf(output, sum, up, output == kOutResidual ? ToFloat(*to) : 0.0f));
}

// The element of y of row `row` of the tile's expert, the panel's column 0 and a node of kPartial.
FB_DEVICE int64_t ElementOfY(const LinearParams& args, const RowTile& tile, int32_t node,
                             int32_t row) {
  return node * args.plane_stride + tile.expert * (args.offsets != nullptr ? 0 : args.y_step) +
         (RowsBefore(args, tile) + int64_t{row}) * args.y_stride + args.panels[2 * gpu::BlockY()];
}

}  // namespace forebay::kernels::cuda
