// y = x W^T: one fused chain over K an output and leaf, in the order of kernels/linear.h; and the
// experts' (kernels/experts.h). A block has 64 columns of a panel x kTileRows rows; a thread one
// column of half of the rows, so that a weight is read once a half.
//
// Bytes: the weights once for every kTileRows rows, from cache after the first. Limit: the chain,
// 2 x kTileRows / 2 multiply-adds for 4 bytes of weights, on CUDA cores.
#include "kernels/cuda/pair/arithmetic.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kColumns = 64, kMyRows = kTileRows / 2;
// LinearOutput's values.
enum : int32_t {
  kOutF32,
  kOutRounded,
  kOutResidual,
  kOutSiluMul,
  kOutPartial,
  kOutGeluMul,
  kOutClampedSiluMul
};

// What the block computes: rows of an expert from `first` on.
struct Tile {
  int32_t expert = 0, first = 0, rows = 0;  // rows of the expert; 0: nothing
};

FB_DEVICE Tile FindTile(const LinearParams& args) {
  int tile = gpu::BlockY();
  if (args.offsets == nullptr) {
    const int tiles = (args.rows + kTileRows - 1) / kTileRows;
    return {tile / tiles, tile % tiles * kTileRows, args.rows};
  }
  for (int32_t expert = 0; expert < args.num_experts; ++expert) {
    const int32_t rows = args.offsets[expert + 1] - args.offsets[expert];
    const int tiles = (rows + kTileRows - 1) / kTileRows;
    if (tile < tiles) return {expert, tile * kTileRows, rows};
    tile -= tiles;
  }
  return {};
}

template <typename T>
FB_DEVICE void LeafChain(const T* const (&x)[kMyRows], const T* w, int32_t k_leaf,
                         float (&sums)[kMyRows]) {
  for (int i = 0; i < kMyRows; ++i) sums[i] = 0;
  const int32_t pairs = k_leaf / 2;
  for (int32_t pair = 0; pair < pairs; ++pair, w += 2 * kColumns) {
    const float even = ToFloat(w[0]), odd = ToFloat(w[1]);
    for (int i = 0; i < kMyRows; ++i) {
      sums[i] = gpu::Fma(ToFloat(x[i][2 * pair + 1]), odd, sums[i]);
      sums[i] = gpu::Fma(ToFloat(x[i][2 * pair]), even, sums[i]);
    }
  }
  if (k_leaf % 2 == 0) return;
  for (int i = 0; i < kMyRows; ++i) {
    sums[i] = gpu::Fma(0.0f, ToFloat(w[1]), sums[i]);
    sums[i] = gpu::Fma(ToFloat(x[i][k_leaf - 1]), ToFloat(w[0]), sums[i]);
  }
}

// The sum of a node's leaves in the tree.
template <typename T, typename TileOf>
FB_DEVICE void NodeSum(const LinearParams& args, const LeafNode& node, const T* const (&x)[kMyRows],
                       int column, TileOf tile_of, float (&sums)[kMyRows]) {
  constexpr int kDepth = 4;  // pending nodes of a tree of 8 leaves
  float pending[kDepth][kMyRows];
  int top = 0;
  for (int32_t i = 0; i < node.count; ++i) {
    const int32_t leaf = node.first + i, begin = args.leaf_begin[leaf];
    const T* from[kMyRows];
    for (int r = 0; r < kMyRows; ++r) from[r] = x[r] + begin;
    LeafChain(from, As<T>(tile_of(leaf)) + column * 2, args.leaf_begin[leaf + 1] - begin, sums);
    // A leaf's number has a bit for each node that it ends; behind the last all that are left.
    const bool last = i + 1 == node.count;
    for (int32_t bits = i; top > 0 && (last || (bits & 1)); bits >>= 1) {
      --top;
      for (int r = 0; r < kMyRows; ++r) sums[r] = pending[top][r] + sums[r];
    }
    if (last) return;
    for (int r = 0; r < kMyRows; ++r) pending[top][r] = sums[r];
    ++top;
  }
}

template <typename T>
FB_DEVICE void Linear(const LinearParams& args, float* shared) {
  const Tile tile = FindTile(args);
  if (tile.rows == 0) return;
  const int panel = gpu::BlockX(), column = gpu::Tid() % kColumns;
  const int half = gpu::Tid() / kColumns;
  const bool grouped = args.offsets != nullptr;
  const int32_t before = grouped ? args.offsets[tile.expert] : 0;
  const auto tile_of = [&](int32_t leaf) {
    if (args.runs != nullptr) return args.runs[tile.expert] + panel * args.tile_bytes;
    return args.tiles[(tile.expert * args.num_leaves + leaf) * args.num_panels + panel];
  };
  // Rows beyond the last are computed as the last one and not written.
  const T* x[kMyRows];
  int32_t row[kMyRows];
  for (int i = 0; i < kMyRows; ++i) {
    row[i] = tile.first + half * kMyRows + i;
    const int32_t there = before + (row[i] < tile.rows ? row[i] : tile.rows - 1);
    const int64_t x_row = args.x_rows == nullptr ? there : args.x_rows[there];
    x[i] = As<T>(args.x) + tile.expert * (grouped ? 0 : args.x_step) + x_row * args.x_stride;
  }
  const int32_t first_column = args.panels[2 * panel], width = args.panels[2 * panel + 1];
  for (int32_t n = 0; n < args.num_nodes; ++n) {
    float sums[kMyRows];
    NodeSum(args, args.nodes[n], x, column, tile_of, sums);
    if (args.bias != nullptr && args.output != kOutPartial) {
      const float bias =
          args.bias[(int64_t{tile.expert} * args.num_panels + panel) * kColumns + column];
      for (int i = 0; i < kMyRows; ++i) sums[i] = sums[i] + bias;
    }
    const bool gated = args.output == kOutSiluMul || args.output == kOutGeluMul ||
                       args.output == kOutClampedSiluMul;
    if (gated) {
      // The gate's columns are the panel's first half, the up projection's the second.
      for (int i = 0; i < kMyRows; ++i) shared[(half * kMyRows + i) * kColumns + column] = sums[i];
      gpu::Sync();
    }
    if (column >= width) continue;
    for (int i = 0; i < kMyRows; ++i) {
      if (row[i] >= tile.rows) continue;
      const int64_t at = tile.expert * (grouped ? 0 : args.y_step) +
                         (before + row[i]) * args.y_stride + first_column + column;
      T* const y = As<T>(args.y) + at;
      const float up =
          gated ? shared[(half * kMyRows + i) * kColumns + column + kColumns / 2] : 0.0f;
      switch (args.output) {
        case kOutF32: As<float>(args.y)[at] = sums[i]; break;
        case kOutRounded: *y = RoundTo<T>(sums[i]); break;
        case kOutResidual: *y = RoundTo<T>(sums[i] + ToFloat(*y)); break;
        case kOutSiluMul: *y = RoundTo<T>(SiluOf(sums[i]) * up); break;
        case kOutGeluMul: *y = RoundTo<T>(GeluOf(sums[i]) * up); break;
        case kOutClampedSiluMul: *y = RoundTo<T>(ClampedSiluOf(sums[i]) * ClampedUpOf(up)); break;
        default: As<float>(args.y)[n * args.plane_stride + at] = sums[i];
      }
    }
  }
}

}  // namespace

FB_KERNEL(pair_linear, LinearParams, kLinearThreads) {
  FB_SHARED(float, shared);  // [kTileRows, 64], where gate meets up
  FB_FOR_ELEMENT(args.element, Linear, args, shared);
}

}  // namespace forebay::kernels::cuda
