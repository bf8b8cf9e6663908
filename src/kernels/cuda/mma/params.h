// What the kernels of class mma_k16f25 take: one flat struct each, whose geometry launch/mma.h
// plans. Pointers are to memory that the GPU reaches.
//
// Packed operand: a matrix of rows (of activations, or columns of weights) and K in chunks
// (kernels/packed_form.h). A leaf of K is padded with +0 to whole chunks, in weights and in
// activations alike. Rows beyond the last one may hold anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/pair/params.h"
#include "kernels/packed_form.h"
#include "kernels/step_batch.h"

namespace forebay::kernels::cuda {

inline constexpr int kMmaLeaves = 8;

// Plain kernels, which take what class `pair`'s do (pair/params.h): rows and threads of a block of
// linear layers; elements of V of a warp of attention, and words of shared memory that it has.
inline constexpr int kPlainRows = 32, kPlainThreads = 128;
inline constexpr int kPlainValues = 64, kPlainKept = 32 * 32;

// x [rows, K] as it lies to chunks, for the two kernels below (pack_rows.cu).
inline constexpr int kPackThreads = 128;
struct PackRowsParams {
  const std::byte* x;  // bf16, row stride x_stride elements
  std::byte* chunks;   // [blocks of 64 rows][chunks along K, leaf after leaf]
  int64_t x_stride;
  int32_t rows, num_leaves;
  int32_t leaf_begin[kMmaLeaves + 1];   // elements
  int32_t chunk_begin[kMmaLeaves + 1];  // of each leaf
};

// Where outputs go: kernels/linear.h.
struct LinearOutputs {
  std::byte* y;  // row stride y_stride elements
  int64_t y_stride;
  RowForm form;           // of y
  const int32_t* panels;  // [num_panels] pairs of column and width
  const float* bias;      // [num_panels * 64]; null: none
  int32_t output;         // LinearOutput
  int32_t rows;
};

// Linear layers of 1 to 64 rows (linear_small.cu).
inline constexpr int kSmallConsumers = 8;  // warps; one more moves the data
inline constexpr int kSmallThreads = (kSmallConsumers + 1) * 32;
inline constexpr int kUnitColumns = 16, kUnitBytes = kUnitColumns * kChunkSide * 2;
inline constexpr int kUnitStoreBytes =
    3 * 8 * kUnitColumns * 2;  // a consumer: three of 8 rows as bf16
inline constexpr int kUnitStores = kSmallConsumers * kUnitStoreBytes;
struct SmallLinearParams {
  const std::byte* const* tiles;  // [leaf * num_panels + panel]: chunks of 64 columns along K
  const std::byte* x;             // chunks of 64 rows along K, leaf after leaf
  LinearOutputs to;
  int32_t num_panels;  // of 64 columns
  int32_t num_leaves;
  int32_t leaf_begin[kMmaLeaves + 1];  // chunks, from 0 on
  // A block takes `units` of 16 columns along K together; `row_groups` warps share a unit's rows.
  int32_t units, row_groups;
  int32_t stage_chunks, stages;  // of the ring: chunks along K (of each leaf, over warps)
};

// Linear layers of many rows (linear_many.cu).
inline constexpr int kManyRows = 128,
                     kManyThreads = 3 * 128;  // of a tile; a producer group, two of rows
struct ManyLinearParams {
  const std::byte* const* tiles;  // as SmallLinearParams has them
  const std::byte* x;             // [blocks of 64 rows][x_chunks]
  LinearOutputs to;
  int32_t x_chunks;    // from a block of rows to the next
  int32_t row_blocks;  // of 64
  int32_t num_panels;
  int32_t num_leaves;
  int32_t leaf_begin[kMmaLeaves + 1];  // chunks, from 0 on
  // Tiles of 128 rows (two side by side in a cluster) by a kernel's width; `group` row tiles are
  // taken together along the columns, so that weights come from L2.
  int32_t row_tiles, column_tiles, group;
};
// Columns of a tile, stages of the ring and blocks of a cluster.
struct ManyForm {
  int columns, stages, blocks;
  bool leaves;
};
inline constexpr ManyForm kMany256{256, 4, 1, false}, kMany128{128, 6, 2, false},
    kManyLeaves{128, 4, 2, true};
constexpr int ManyStageBytes(ManyForm form) { return 2 * kChunkBytes + form.columns * 128; }
constexpr int ManyPlaneBytes(ManyForm form) {
  return form.leaves ? kManyRows * form.columns * 4 : 0;
}
inline constexpr int kManyStoreBytes =
    8 * 2 * 2048;  // a consumer's warp: two of 16 rows x 64 of bf16
constexpr int ManySharedBytes(ManyForm form) {
  return form.stages * (ManyStageBytes(form) + 16) + ManyPlaneBytes(form) + kManyStoreBytes;
}

// Matrices of experts, or of heads (kernels/experts.h), one leaf of K each, as tiles of one grid.
// Rows of x are gathered as they lie.
struct ExpertsParams {
  const std::byte* const* runs;   // [num_experts], panel after panel; null: heads
  const std::byte* const* tiles;  // of heads: [num_experts * num_panels]
  int64_t tile_bytes;             // of a run's
  const int32_t* offsets;         // [num_experts + 1]: rows of the grouped order; null: heads
  const std::byte* x;             // bf16, granules of 8 elements
  const int32_t* x_rows;          // of the grouped order; null: as numbered
  int64_t x_granules, x_step;     // from a row to the next; from a head's x to the next one's
  LinearOutputs to;               // rounded or gated; rows: of each head
  int64_t y_step;                 // elements
  int32_t num_experts, num_panels;
  int32_t k;  // a multiple of 8
};
// The small kernel: blocks take `units` of 16 columns along K together.
struct SmallExpertsParams {
  ExpertsParams of;
  int32_t units, stage_chunks, stages;
};

// KV of one layer: for each head of a block K, then V, each [head_dim / 64][32 positions][64] in
// the swizzle of chunks, of bf16 or of codes; of int8 scales behind. Entries of block tables are
// those of kernels/kv_layout.h.
struct MmaKvParams {
  const uint32_t* block_tables;
  int64_t table_stride;
  const std::byte* resident;
  const std::byte* window;
  int64_t block_stride, layer_bytes;
  int32_t kv_heads;
  int32_t codes;  // KvCodes
};

// Decode attention (attention_decode.cu). A unit is a part of a row's context for one KV head;
// units of one row and head are as many as its parts that hold a seen position, in slots one behind
// the other.
struct DecodeUnit {
  int32_t row, table_row, kv_head;
  int32_t part, parts;  // of those
  int32_t first, end;   // positions that are seen
  int32_t slot;         // of partials and counts, the row's part 0 of this head
};
inline constexpr int kMostGroup = 8;  // query heads of a KV head
struct DecodeParams {
  MmaKvParams kv;
  const DecodeUnit* units;
  const int32_t* num_units;
  int32_t group, row_heads;
  float scale;
  const std::byte* q;  // [rows, row_heads, head_dim], bf16
  std::byte* out;
  RowForm out_form;
  float* partials;  // [slots, group, head_dim + 2], of rows with several parts
  int32_t* counts;  // [slots], zero before and after
};
inline constexpr int kDecodeConsumers = 8, kWideThreads = (kDecodeConsumers + 1) * 32;
// Shared memory of a unit a block: pieces of the ring; probabilities, sums of lanes and M of steps.
// Two blocks a multiprocessor with head_dim 64.
constexpr int WidePieces(int head_dim) { return (head_dim == 64 ? 2 : 3) * kDecodeConsumers; }
inline constexpr int kWideExtraBytes = 8 * 16 * 32 * 4 + 8 * 4 * 32 * 4 + 2 * 8 * 8 * 4 + 8;
// Warps a block and pieces of a warp's ring, a unit a warp.
constexpr int DecodeWarps(int head_dim) { return head_dim == 64 ? 12 : 8; }
constexpr int DecodePieces(int head_dim) { return head_dim == 64 ? 4 : 3; }
// The ring's places of a piece: bf16, or codes with a scale a position. Beside a ring of codes a
// warp has a tile, the piece as bf16.
constexpr int DecodePlaceBytes(int head_dim, bool coded) {
  return coded ? HeadHalfBytes(head_dim) / 2 + 32 * 4 : HeadHalfBytes(head_dim);
}
constexpr int DecodeTileBytes(int head_dim, bool coded) {
  return coded ? HeadHalfBytes(head_dim) : 0;
}

// Prefill attention (attention_prefill.cu): tiles of up to 128 rows of a sequence, long contexts
// first. Row i of a tile sees positions [0, first_position + i].
inline constexpr int kPrefillRows = 128, kPrefillThreads = 3 * 128;
struct PrefillTile {
  int32_t row, rows;  // of q and out
  int32_t table_row, first_position;
  int32_t end;  // of the sequence: positions below it hold K and V
};
struct PrefillParams {
  MmaKvParams kv;
  const PrefillTile* tiles;
  const int32_t* num_tiles;
  int32_t heads, row_heads;
  float scale;
  const std::byte* q;  // [rows, row_heads, head_dim], bf16
  std::byte* out;
  RowForm out_form;
};
// Absorbed latent attention (attention_latent.cu): rows of the step and 64 of their heads. Latents
// of a block lie as its K does, [576 / 64][32 positions][64].
inline constexpr int kLatentKeys = 576, kLatentValues = 512, kLatentHeads = 64;
inline constexpr int kLatentThreads = 3 * 128;
// Queries, a step's keys, probabilities; the greatest scores; barriers.
inline constexpr int kLatentSharedBytes = kLatentHeads * kLatentValues * 2 + 128 * kLatentKeys * 2 +
                                          kLatentHeads * 128 * 2 + 2 * kLatentHeads * 4 + 8 * 8;
// Device memory of a block: a part's values.
inline constexpr int64_t kLatentPartsBytes = int64_t{kLatentHeads} * kLatentValues * 4;
struct LatentParams {
  AttentionParams of;
  int32_t units;     // rows of the step times groups of heads
  std::byte* parts;  // [blocks][kLatentPartsBytes]
};

// What a step's rows are to these kernels (attention_lists.cu): sequences of one row become units,
// the others tiles, if `tiles` are wanted.
inline constexpr int kListThreads = 256;
inline constexpr int kListsOfStep = 16;  // by length: 8 of units, 8 of tiles
inline constexpr int kListSharedBytes = (kListsOfStep * kListThreads + kListsOfStep + 1) * 4;
struct AttentionListParams {
  const SequenceRows* sequences;
  int32_t num_sequences, kv_heads;
  int32_t reach_window, reach_chunk;  // as in AttentionParams
  int32_t most_units;                 // that there is room for
  DecodeUnit* units;
  int32_t* counts;     // [most_units]
  PrefillTile* tiles;  // as many as there may be, or null
  int32_t* totals;     // units, tiles, and whether all units have room: if not there are none
};
inline constexpr int kListTotals = 3;

// Shared memory: queries; two stages of K and of V; the merged parts; barriers; of KV in codes the
// stages' scales.
inline constexpr int kPrefillSharedBytes = 32768 + 2 * 32768 + 2 * 32768 + 65536 + 8 * 8;
inline constexpr int kPrefillScaleBytes = 2 * 2 * 128 * 4;

}  // namespace forebay::kernels::cuda
