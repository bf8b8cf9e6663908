// y = x W^T: one fused chain over K an output and leaf, in the order of kernels/linear.h; and the
// experts' (kernels/experts.h). A block has 64 columns of a panel x kTileRows rows; a thread one
// column of half of the rows, so that a weight is read once a half.
//
// Bytes: the weights once for every kTileRows rows, from cache after the first. Limit: the chain,
// 2 x kTileRows / 2 multiply-adds for 4 bytes of weights, on CUDA cores.
#include "kernels/cuda/pair/linear_rows.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kMyRows = kTileRows / 2;

template <typename T>
FB_DEVICE void LeafChain(const T* const (&x)[kMyRows], const T* w, int32_t k_leaf,
                         float (&sums)[kMyRows]) {
  for (int i = 0; i < kMyRows; ++i) sums[i] = 0;
  const int32_t pairs = k_leaf / 2;
  for (int32_t pair = 0; pair < pairs; ++pair, w += 2 * kColumnsOfPanel) {
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

template <typename T>
FB_DEVICE void Linear(const LinearParams& args, float* shared) {
  const RowTile tile = FindTile<kTileRows>(args);
  if (tile.rows == 0) return;
  const int column = gpu::Tid() % kColumnsOfPanel, half = gpu::Tid() / kColumnsOfPanel;
  // Rows beyond the last are computed as the last one and not written.
  const T* x[kMyRows];
  int32_t row[kMyRows];
  for (int i = 0; i < kMyRows; ++i) {
    row[i] = tile.first + half * kMyRows + i;
    x[i] = RowOfX<T>(args, tile, row[i]);
  }
  const bool gated = IsGatedOutput(args.output);
  for (int32_t n = 0; n < args.num_nodes; ++n) {
    float sums[kMyRows];
    NodeSum(
        args.nodes[n],
        [&](int32_t leaf, float(&of_leaf)[kMyRows]) {
          const int32_t begin = args.leaf_begin[leaf];
          const T* from[kMyRows];
          for (int r = 0; r < kMyRows; ++r) from[r] = x[r] + begin;
          LeafChain(from, As<T>(TileOf(args, tile, leaf)) + column * 2,
                    args.leaf_begin[leaf + 1] - begin, of_leaf);
        },
        sums);
    if (args.bias != nullptr && args.output != kOutPartial) {
      const float bias = BiasOf(args, tile)[column];
      for (int i = 0; i < kMyRows; ++i) sums[i] = sums[i] + bias;
    }
    if (gated) {
      // The gate's columns are the panel's first half, the up projection's the second.
      for (int i = 0; i < kMyRows; ++i)
        shared[(half * kMyRows + i) * kColumnsOfPanel + column] = sums[i];
      gpu::Sync();
    }
    if (column >= args.panels[2 * gpu::BlockY() + 1]) continue;
    for (int i = 0; i < kMyRows; ++i) {
      if (row[i] >= tile.rows) continue;
      const float up =
          gated ? shared[(half * kMyRows + i) * kColumnsOfPanel + column + kColumnsOfPanel / 2]
                : 0.0f;
      StoreSum<T>(args.output, args.y, ElementOfY(args, tile, n, row[i]) + column, sums[i], up);
    }
  }
}

}  // namespace

FB_KERNEL(pair_linear, LinearParams, kLinearThreads) {
  FB_SHARED(float, shared);  // [kTileRows, 64], where gate meets up
  FB_FOR_ELEMENT(args.element, Linear, args, shared);
}

}  // namespace forebay::kernels::cuda
