// A weight matrix as kernels read it: a list of tiles, never one base pointer, so that a tile may
// lie in the own arena, in a slot that a pull filled, or in a slice of another layout.
//
//   logical W [N outputs, K inputs], y = x W^T
//   K is cut into leaves (one, or as LeafBorders says where TP or striping may split K);
//   N is cut into panels of 64 columns; a panel crosses no vocabulary shard, no gate/up pair and,
//   where ranks cut rows, no head.
//   tile (leaf, panel) = [ceil(K_leaf / 2)][64][2] elements: pairs along K, +0 where K_leaf is odd
//   or a column unused; or codes and scales that kernels expand to it (kernels/tile_form.h). A
//   panel has one form, panels of a weight may differ. Or codes that are multiplied (kW8A8), in all
//   panels of a weight. Or chunks, for kernels of tensor cores (kernels/packed_form.h).
//   tiles are stored leaf by leaf: tiles[leaf * num_panels + panel].
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/number_format.h"
#include "kernels/packed_form.h"
#include "kernels/tile_form.h"
#include "tensor/tensor.h"

namespace forebay::kernels {

inline constexpr int kPanelColumns = 64;
inline constexpr int kMaxLeaves = 8;

// Borders of the leaves along K, from the rule of the exactness contract (ARCHITECTURE.md, "One
// request, one answer"). A rank that owns some of a layer's leaves has a weight of these alone,
// which knows their place among all.
struct LeafBorders {
  int num_leaves = 1;
  int32_t begin[kMaxLeaves + 1] = {0, 0};   // begin[num_leaves] = K
  int leaves_before = 0, leaves_after = 0;  // leaves of the whole layer on both sides

  int tree_leaves() const { return leaves_before + num_leaves + leaves_after; }
  // Leaves [first, last), as a weight of its own: begin[0] = 0.
  LeafBorders Slice(int first, int last) const;

  static LeafBorders Single(int64_t k);
  // Down projection: n = min(8, K / 32) leaves, leaf i begins at i K / n rounded down to a multiple
  // of 64 (of 32 where K / n is no multiple of 64).
  static LeafBorders ForDown(int64_t k);
  // Output projection: n = min(8, heads) leaves at i heads / n heads (rounded down).
  static LeafBorders ForOutput(int64_t heads, int64_t head_dim);
};

// What one panel's columns are: `width` outputs from logical output `column` on. In a gate/up
// weight columns 0..31 of the panel are gate rows column.., columns 32..63 the up rows with the
// same numbers, and width <= 32.
struct PanelColumns {
  int32_t column;
  int32_t width;
};

// Flat description, all arrays in device memory. Copied into operations.
struct PackedWeight {
  tensor::DType dtype = tensor::DType::kBF16;  // kBF16 or kF32: the activation type too
  // How tiles are stored, where that is not `dtype`: on devices of shapes without data alone.
  std::optional<cost::NumberFormat> stored;
  TileForm form = TileForm::kExpanded;     // of all panels, where `forms` is null
  PackedForm packed = PackedForm::kPairs;  // of expanded tiles
  int32_t k = 0;                           // inputs
  // logical outputs (of a gate/up pair: of one of the two)
  int32_t n = 0;
  int32_t num_panels = 0;
  LeafBorders leaves;
  const std::byte* const* tiles = nullptr;  // [num_leaves * num_panels]
  const PanelColumns* panels = nullptr;     // [num_panels]
  const float* bias = nullptr;              // [num_panels * 64] in panel order, or null
  const TileForm* forms = nullptr;          // [num_panels], or null
  // Which value of its tensors' rows the first input is: groups of scales count from there.
  int32_t first_k = 0;

  TileForm FormOf(int64_t panel) const { return forms == nullptr ? form : forms[panel]; }
  // Whether codes are multiplied: of all panels or none.
  bool is_int8() const { return forms == nullptr && form == TileForm::kW8A8; }
  // Whether kernels may have to expand some panel.
  bool has_stored_tiles() const {
    return forms != nullptr || (form != TileForm::kExpanded && form != TileForm::kW8A8);
  }
  cost::NumberFormat format() const {
    return stored ? *stored : is_int8() ? cost::NumberFormat::kInt8 : NumberFormatOf(dtype);
  }
  // Of a tile as it is stored, and as kernels compute with it.
  int64_t TileBytes(int leaf, int64_t panel) const {
    if (stored) return StoredTileBytes(leaf);
    const TileForm as = FormOf(panel);
    return as == TileForm::kExpanded
               ? ExpandedTileBytes(leaf)
               : PartsOf(as, first_k + leaves.begin[leaf], first_k + leaves.begin[leaf + 1]).bytes;
  }
  int64_t ExpandedTileBytes(int leaf) const {
    const int64_t k_leaf = leaves.begin[leaf + 1] - leaves.begin[leaf];
    if (packed == PackedForm::kCuda) return (k_leaf + kChunkSide - 1) / kChunkSide * kChunkBytes;
    const int64_t pairs = (k_leaf + 1) / 2;
    return pairs * kPanelColumns * 2 * static_cast<int64_t>(tensor::SizeOf(dtype));
  }
  int64_t StoredTileBytes(int leaf) const;
  // All panels of a leaf.
  int64_t LeafBytes(int leaf) const {
    if (forms == nullptr) return TileBytes(leaf, 0) * num_panels;
    int64_t sum = 0;
    for (int32_t panel = 0; panel < num_panels; ++panel) sum += TileBytes(leaf, panel);
    return sum;
  }
  int64_t bytes() const {
    int64_t sum = 0;
    for (int leaf = 0; leaf < leaves.num_leaves; ++leaf) sum += LeafBytes(leaf);
    return sum;
  }
};

// Packs rows of W into a tile. T: tensor::BF16 or float. rows[c]: row of column c, K_leaf values
// from the leaf's begin on, or null (an unused column: zeros). tile: ExpandedTileBytes(leaf) bytes.
template <typename T>
void PackTile(int64_t k_leaf, const T* const rows[kPanelColumns], std::byte* tile);
// The same in a form. REQUIRES of kCuda: T is bf16.
template <typename T>
void PackTile(PackedForm form, int64_t k_leaf, const T* const rows[kPanelColumns], std::byte* tile);
// The same of values [begin, end) of stored rows, in their form. tile: PartsOf(..).bytes.
void PackTile(TileForm form, int64_t begin, int64_t end, const StoredRow* const rows[kPanelColumns],
              std::byte* tile);

}  // namespace forebay::kernels
