// From a tile as it is stored to values of the compute type, as linear layers multiply them. All
// expanders give the bits of ExpandRow, rounded once. Exactness needs the flags of compute threads:
// denormals are flushed.
#pragma once

#include "kernels/packed_weight.h"

namespace forebay::kernels {

// Pairs of a tile that are wanted.
struct TilePart {
  TileForm form;
  tensor::DType dtype;      // the compute type
  const std::byte* tile;    // 64-byte aligned
  int64_t begin, end;       // the leaf's values, from the begin of the tensor's rows on
  int64_t pair, num_pairs;  // counted from `begin`
  std::byte* out;           // [num_pairs][64][2] of dtype, 64-byte aligned
  // What is expanded next, and prefetched meanwhile: pairs of a tile of the same form, or null.
  const std::byte* next_tile = nullptr;
  int64_t next_pair = 0;
};

// The whole tile of a leaf and a panel.
inline TilePart PartOf(const PackedWeight& weight, int leaf, int64_t panel, std::byte* out) {
  const LeafBorders& leaves = weight.leaves;
  return {.form = weight.FormOf(panel),
          .dtype = weight.dtype,
          .tile = weight.tiles[static_cast<int64_t>(leaf) * weight.num_panels + panel],
          .begin = weight.first_k + leaves.begin[leaf],
          .end = weight.first_k + leaves.begin[leaf + 1],
          .pair = 0,
          .num_pairs = (leaves.begin[leaf + 1] - leaves.begin[leaf] + 1) / 2,
          .out = out};
}

// REQUIRES: a form that is not kExpanded.
using ExpandFunction = void (*)(const TilePart& part);

// Products of a few rows with a part, whose expanded values stay in registers; `out` is not used.
struct RowsByPart {
  TilePart part;
  int rows;           // 1..6
  const uint32_t* x;  // [num_pairs][rows] of bf16 pairs
  float* sums;        // [rows][64]; `resume`: they are added to what is there
  bool resume;
};

// Whether a part begins and ends with lanes of codes, so that it lies in groups of scales by 16s.
inline bool HasWholeLanes(const TilePart& part) {
  return part.begin % 16 == 0 && part.pair % 8 == 0 && part.num_pairs % 8 == 0;
}

// The bits of the set's register tile over the expanded part. REQUIRES: bf16, HasWholeLanes.
using MultiplyPartFunction = void (*)(const RowsByPart& rows);

namespace ref {
void Expand(const TilePart& part);
// One column, its values side by side: out [2 num_pairs] of dtype.
void ExpandColumn(const TilePart& part, int column);
}  // namespace ref
namespace avx2 {
void Expand(const TilePart& part);
}  // namespace avx2
namespace avx512f {
void Expand(const TilePart& part);
}  // namespace avx512f
namespace avx512bf16 {
void Expand(const TilePart& part);
void MultiplyPart(const RowsByPart& rows);
}  // namespace avx512bf16

}  // namespace forebay::kernels
