// How values of the compute type lie for a kernel set: weights, and K and V in the cache.
#pragma once

#include <cstdint>

namespace forebay::kernels {

enum class PackedForm : uint8_t {
  kPairs,  // neighbours along what products chain over lie side by side: any type, any size
  kCuda,   // bf16 in chunks, as tensor cores of GPUs read it
};

// A chunk of kCuda: 64 rows x 64 elements along K of bf16, 8 KiB, the image of shared memory in the
// 128-byte swizzle.
//   weights   a tile is its leaf's chunks along K, the last one padded with +0. Rows are the
//             panel's columns in the order of ChunkRow.
//   K, V      of a head's block each: [head_dim / 64][32 positions][64], 4 KiB for 64 elements,
//             positions as rows; head_dim is a multiple of 64. As many bytes as in kPairs. Of
//             latents (values in keys) the keys alone.
inline constexpr int kChunkSide = 64, kChunkBytes = kChunkSide * kChunkSide * 2;

// The byte of a chunk where row `row`, element `k` lies.
constexpr int InChunk(int row, int k) { return row * 128 + ((k * 2) ^ (row % 8 * 16)); }

// The row of a chunk that has column `column` of its panel: eights of the panel's halves take
// turns. So a thread that sums up a gate's column has that of its up projection too.
constexpr int ChunkRow(int column) {
  const int half = column / 32, in_half = column % 32;
  return in_half / 8 * 16 + half * 8 + in_half % 8;
}
constexpr int ColumnOfChunk(int row) { return row / 16 * 8 + row % 16 / 8 * 32 + row % 8; }

// K or V of a head's block in kCuda: its bytes, and the byte where element `j` of position `t`
// lies.
constexpr int HeadHalfBytes(int head_dim) { return head_dim * 32 * 2; }
constexpr int InHeadHalf(int t, int j) {
  return j / kChunkSide * 4096 + InChunk(t, j % kChunkSide);
}

// How rows of activations lie between operations.
enum class RowForm : uint8_t {
  kRows,    // one after the other
  kChunks,  // [blocks of 64 rows][chunks along a row]: what linear layers of kCuda read. Of bf16,
            // rows of a multiple of 64 elements; rows behind the last one may hold anything.
};

// The byte where element `column` of a row of bf16 lies, of `columns` elements each.
constexpr int64_t InRows(RowForm form, int32_t row, int32_t column, int64_t columns) {
  if (form == RowForm::kRows) return (row * columns + column) * 2;
  return (row / kChunkSide * (columns / kChunkSide) + column / kChunkSide) * kChunkBytes +
         InChunk(row % kChunkSide, column % kChunkSide);
}

// The rows that a buffer of `rows` rows has room for.
constexpr int64_t RoomForRows(RowForm form, int64_t rows) {
  return form == RowForm::kRows ? rows : (rows + kChunkSide - 1) / kChunkSide * kChunkSide;
}
constexpr int64_t RoomForRows(PackedForm packed, int64_t rows) {
  return RoomForRows(packed == PackedForm::kCuda ? RowForm::kChunks : RowForm::kRows, rows);
}

}  // namespace forebay::kernels
