// How blocks of linear_many and linear_small find the rows of experts (kernels/experts.h), and how
// these come into their rings.
//
// Tiles of rows and columns are dealt from the counts of rows, which blocks read when they run: an
// expert's tiles follow each other, those of the same columns side by side, so that weights come
// from L2 for all but the first. Blocks go round: block b has tiles b, b + blocks, ... Rows lie
// anywhere in x: threads copy 16 bytes each into the swizzle of chunks, and void rows of a tile
// hold what was there before.
#pragma once

#include "kernels/cuda/hopper.h"
#include "kernels/cuda/mma/params.h"

namespace forebay::kernels::cuda {

inline constexpr int kGranuleBytes = 16, kGranulesOfChunk = kChunkSide * 2 / kGranuleBytes;

struct ExpertTile {
  int expert, rows;      // of the expert
  int first;             // its first row of the grouped order
  int row_tile, column;  // number among its tiles of rows; tile of columns
};

// The counts, to the block's shared memory; then Sync.
FB_DEVICE void TakeOffsets(const ExpertsParams& args, int32_t* offsets) {
  if (args.offsets == nullptr) return;
  for (int i = gpu::Tid(); i <= args.num_experts; i += gpu::Threads()) offsets[i] = args.offsets[i];
}

// Calls visit(tile) for each of the block's tiles of kRows rows.
template <int kRows, typename Visit>
FB_DEVICE void ForEachExpertTile(const ExpertsParams& args, int column_tiles,
                                 const int32_t* offsets, Visit visit) {
  int before = 0;  // tiles of the experts before
  int at = gpu::BlockX();
#pragma unroll 1
  for (int expert = 0; expert < args.num_experts; ++expert) {
    const bool heads = args.offsets == nullptr;
    const int first = heads ? 0 : offsets[expert];
    const int rows = heads ? args.to.rows : offsets[expert + 1] - first;
    const int row_tiles = (rows + kRows - 1) / kRows, end = before + row_tiles * column_tiles;
#pragma unroll 1
    for (; at < end; at += gpu::GridX()) {
      const int tile = at - before;
      visit(ExpertTile{expert, rows, first, tile % row_tiles, tile / row_tiles});
    }
    before = end;
  }
}

// The tile of a panel; of one behind the last, that one.
FB_DEVICE const std::byte* PanelOfExpert(const ExpertsParams& args, int expert, int panel) {
  if (panel >= args.num_panels) panel = args.num_panels - 1;
  return args.runs != nullptr ? args.runs[expert] + panel * args.tile_bytes
                              : args.tiles[expert * args.num_panels + panel];
}

FB_DEVICE LinearOutputs OutputsOfExpert(const ExpertsParams& args, const ExpertTile& tile) {
  LinearOutputs to = args.to;
  to.y += (tile.first * to.y_stride + tile.expert * args.y_step) * 2;
  to.rows = tile.rows;
  if (to.bias != nullptr) to.bias += int64_t{tile.expert} * args.num_panels * kChunkSide;
  return to;
}

FB_DEVICE int ChunksOfExpert(const ExpertsParams& args) {
  return (args.k + kChunkSide - 1) / kChunkSide;
}

// Rows of a tile, a chunk along K at a time, by kThreads threads: thread t brings granule t % 8 of
// rows t / 8, t / 8 + kThreads / 8, ...
template <int kRows, int kThreads>
struct RowGather {
  static constexpr int kApart = kThreads / kGranulesOfChunk, kOfThread = kRows / kApart;
  static_assert(kOfThread <= 32);

  const std::byte* x;
  uint32_t from[kOfThread];  // granules
  uint32_t there = 0;        // a bit a row
  int thread, granules;      // of a row

  FB_DEVICE explicit RowGather(const ExpertsParams& args)
      : x(args.x), thread(gpu::Tid() % kThreads), granules(args.k / 8) {}

  FB_DEVICE void Take(const ExpertsParams& args, const ExpertTile& tile) {
    x = args.x + tile.expert * args.x_step * kGranuleBytes;
    there = 0;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int row = tile.row_tile * kRows + thread / kGranulesOfChunk + i * kApart;
      from[i] = 0;
      if (row >= tile.rows) continue;
      there |= 1u << i;
      const int of_x = args.x_rows == nullptr ? tile.first + row : args.x_rows[tile.first + row];
      from[i] = static_cast<uint32_t>(of_x * args.x_granules);
    }
  }

  // `to`: rows of 128 bytes. What lies behind K is +0. Then CopiesArrive.
  FB_DEVICE void Copy(std::byte* to, int chunk) const {
    const int granule = chunk * kGranulesOfChunk + thread % kGranulesOfChunk;
    const bool of_k = granule < granules;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int row = thread / kGranulesOfChunk + i * kApart;
      if ((there >> i & 1) == 0) continue;
      gpu::CopyAsync16(to + InChunk(row, thread % kGranulesOfChunk * 8),
                       x + int64_t{kGranuleBytes} * (from[i] + static_cast<uint32_t>(granule)),
                       of_k);
    }
  }
};

}  // namespace forebay::kernels::cuda
