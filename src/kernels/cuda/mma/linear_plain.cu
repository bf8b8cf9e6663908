// y = x W^T in class mma_k16f25 for every shape and output, experts and heads too: what
// linear_small and linear_many do not take. Weights lie in chunks (kernels/packed_form.h) and are
// the A operand of mma.sync; rows of x, as they lie, are its columns. A block has 64 columns of a
// panel x kPlainRows rows, a warp 16 of the columns.
//
// Bytes: the weights once for every kPlainRows rows, from cache after the first; no ring, so their
// latency is seen. Flops: 2 rows columns K. Limit: that latency.
#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/pair/linear_rows.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kTiles = kPlainRows / 8, kStep = 16;

struct XRow {
  const BF16* at;    // element 0; of chunks: the first of those of the row's block
  int32_t in_chunk;  // the row of chunks; -1: elements lie one after the other

  // Elements k and k + 1, +0 from `end` on.
  FB_DEVICE uint32_t Pair(int32_t k, int32_t end) const {
    if (k >= end) return 0;
    if (in_chunk >= 0) {
      return *reinterpret_cast<const uint32_t*>(reinterpret_cast<const std::byte*>(at) +
                                                InRows(RowForm::kChunks, in_chunk, k, 0));
    }
    if (k + 1 == end) return at[k].bits;
    if (reinterpret_cast<uintptr_t>(at + k) % 4 == 0)
      return *reinterpret_cast<const uint32_t*>(at + k);
    return at[k].bits | uint32_t{at[k + 1].bits} << 16;
  }
};

FB_DEVICE XRow RowOf(const LinearParams& args, const RowTile& tile, int32_t row) {
  if (args.x_form == RowForm::kRows) return {RowOfX<BF16>(args, tile, row), -1};
  const int32_t there = row < tile.rows ? row : tile.rows - 1;
  return {As<BF16>(args.x +
                   InRows(RowForm::kChunks, there / kChunkSide * kChunkSide, 0, args.x_stride)),
          there % kChunkSide};
}

// The chain of a leaf, elements [begin, end): the warp's columns of its chunks at `w` times `tiles`
// tiles of 8 rows, of which a thread has row lane / 4 of each at x.
FB_DEVICE void LeafChain(const XRow (&x)[kTiles], const std::byte* w, int32_t begin, int32_t end,
                         int tiles, float (&sums)[kTiles * 4]) {
  const int lane = gpu::Lane(), row = gpu::Warp() * 16 + lane / 4, pair = lane % 4 * 2;
  float all[kTiles][4] = {};
  for (int32_t k = 0; k < end - begin; k += kStep) {
    const std::byte* const chunk = w + int64_t{k / kChunkSide} * kChunkBytes;
    const int in_chunk = k % kChunkSide + pair;
    uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = *reinterpret_cast<const uint32_t*>(chunk +
                                                InChunk(row + i % 2 * 8, in_chunk + i / 2 * 8));
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      if (j < tiles) {
        const int32_t at = begin + k + pair;
        gpu::Mma(all[j], a, x[j].Pair(at, end), x[j].Pair(at + 8, end));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) sums[i] = all[i / 4][i % 4];
}

}  // namespace

FB_KERNEL(mma_linear_plain, LinearParams, kPlainThreads) {
  const RowTile tile = FindTile<kPlainRows>(args);
  if (tile.rows == 0) return;
  const int left = tile.rows - tile.first, tiles = left < kPlainRows ? (left + 7) / 8 : kTiles;
  XRow x[kTiles];
  for (int j = 0; j < kTiles; ++j) x[j] = RowOf(args, tile, tile.first + j * 8 + gpu::Lane() / 4);
  const bool gated = IsGatedOutput(args.output);
  const int32_t width = args.panels[2 * gpu::BlockY() + 1];
  // Sum i of a tile: column `column` + i / 2 * 32, row lane % 4 * 2 + i % 2.
  const int column = ColumnOfChunk(gpu::Warp() * 16 + gpu::Lane() / 4);
  for (int32_t n = 0; n < args.num_nodes; ++n) {
    float sums[kTiles * 4];
    NodeSum(
        args.nodes[n],
        [&](int32_t leaf, float(&of_leaf)[kTiles * 4]) {
          LeafChain(x, TileOf(args, tile, leaf), args.leaf_begin[leaf], args.leaf_begin[leaf + 1],
                    tiles, of_leaf);
        },
        sums);
    if (args.bias != nullptr && args.output != kOutPartial) {
      const float* const bias = BiasOf(args, tile) + column;
      for (int i = 0; i < kTiles * 4; ++i) sums[i] = sums[i] + bias[i % 4 / 2 * 32];
    }
    for (int i = 0; i < kTiles * 4; ++i) {
      const int32_t row = tile.first + i / 4 * 8 + gpu::Lane() % 4 * 2 + i % 2;
      const int32_t at = column + i % 4 / 2 * 32;
      if (row >= tile.rows || at >= width) continue;
      const int64_t element =
          args.y_form == RowForm::kRows
              ? ElementOfY(args, tile, n, row) + at
              : InRows(args.y_form, row, args.panels[2 * gpu::BlockY()] + at, args.y_stride) / 2;
      StoreSum<BF16>(args.output, args.y, element, sums[i],
                     gated ? sums[(i + 2) % (kTiles * 4)] : 0.0f);
    }
  }
}

}  // namespace forebay::kernels::cuda
