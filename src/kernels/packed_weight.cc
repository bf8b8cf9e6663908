#include "kernels/packed_weight.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "tensor/bf16.h"

namespace forebay::kernels {
namespace {

using tensor::BF16;

// A pair of elements, moved as one value.
template <typename T>
using Pair = std::conditional_t<sizeof(T) == 2, uint32_t, uint64_t>;

// Pairs [first, last) of all columns.
template <typename T>
void PackPairs(int64_t k_leaf, const T* const rows[kPanelColumns], Pair<T>* tile, int64_t first,
               int64_t last) {
  constexpr int64_t kPairsAtOnce = 8;  // a cache line of a row of fp32
  for (; first < last; first += kPairsAtOnce) {
    for (int c = 0; c < kPanelColumns; ++c) {
      for (int64_t pair = first; pair < std::min(last, first + kPairsAtOnce); ++pair) {
        Pair<T> value = 0;
        const bool whole = 2 * pair + 1 < k_leaf;
        if (rows[c] != nullptr)
          std::memcpy(&value, rows[c] + 2 * pair, whole ? sizeof(value) : sizeof(T));
        tile[pair * kPanelColumns + c] = value;
      }
    }
  }
}

// Four consecutive pairs of a row; zeros for an unused column.
__m128 LoadPairs(const BF16* row, int64_t pair) {
  return row == nullptr ? _mm_setzero_ps()
                        : _mm_loadu_ps(reinterpret_cast<const float*>(row) + pair);
}

// Blocks of 4 columns x 4 pairs are transposed in registers; 16 columns at a time read and fill
// whole cache lines. Returns how many pairs are done.
int64_t PackBlocks(int64_t k_leaf, const BF16* const rows[kPanelColumns], std::byte* tile) {
  const int64_t pairs = k_leaf / 8 * 4;
  for (int first = 0; first < kPanelColumns; first += 16) {
    for (int64_t pair = 0; pair < pairs; pair += 4) {
      for (int c = first; c < first + 16; c += 4) {
        __m128 p0 = LoadPairs(rows[c], pair), p1 = LoadPairs(rows[c + 1], pair);
        __m128 p2 = LoadPairs(rows[c + 2], pair), p3 = LoadPairs(rows[c + 3], pair);
        _MM_TRANSPOSE4_PS(p0, p1, p2, p3);
        float* const out = reinterpret_cast<float*>(tile) + pair * kPanelColumns + c;
        _mm_storeu_ps(out, p0);
        _mm_storeu_ps(out + kPanelColumns, p1);
        _mm_storeu_ps(out + 2 * kPanelColumns, p2);
        _mm_storeu_ps(out + 3 * kPanelColumns, p3);
      }
    }
  }
  return pairs;
}

// The chunks of a tile of PackedForm::kCuda.
void PackChunks(int64_t k_leaf, const BF16* const rows[kPanelColumns], std::byte* tile) {
  constexpr int kGranule = 8;  // elements that stay together
  for (int64_t begin = 0; begin < k_leaf; begin += kChunkSide, tile += kChunkBytes) {
    for (int c = 0; c < kPanelColumns; ++c) {
      const int row = ChunkRow(c);
      for (int k = 0; k < kChunkSide; k += kGranule) {
        std::byte* const to = tile + InChunk(row, k);
        const int64_t there = std::clamp<int64_t>(k_leaf - begin - k, 0, kGranule);
        if (there < kGranule || rows[c] == nullptr) std::memset(to, 0, kGranule * sizeof(BF16));
        if (there > 0 && rows[c] != nullptr)
          std::memcpy(to, rows[c] + begin + k, static_cast<size_t>(there) * sizeof(BF16));
      }
    }
  }
}

// A column's lanes, of the kWidth bits of each code from bit `shift` on.
template <int kWidth>
void PackPlane(const uint8_t* codes, int64_t count, int shift, int column, std::byte* plane) {
  constexpr int kPairs = 32 / kWidth, kCodes = 2 * kPairs;
  constexpr uint32_t kMask = (1u << kWidth) - 1;
  for (int64_t k = 0; k < count; k += kCodes) {
    uint8_t all[kCodes] = {};
    std::memcpy(all, codes + k, static_cast<size_t>(std::min<int64_t>(kCodes, count - k)));
    uint32_t lanes[2] = {};
#pragma GCC unroll 32
    for (int pair = 0; pair < kPairs; ++pair) {
      lanes[0] |= (uint32_t{all[2 * pair]} >> shift & kMask) << LaneShift(kWidth, pair);
      lanes[1] |= (uint32_t{all[2 * pair + 1]} >> shift & kMask) << LaneShift(kWidth, pair);
    }
    std::memcpy(plane + (k / kCodes * kPanelColumns + column) * sizeof(lanes), lanes,
                sizeof(lanes));
  }
}
void PackPlane(int width, const uint8_t* codes, int64_t count, int shift, int column,
               std::byte* plane) {
  switch (width) {
    case 1: return PackPlane<1>(codes, count, shift, column, plane);
    case 2: return PackPlane<2>(codes, count, shift, column, plane);
    case 4: return PackPlane<4>(codes, count, shift, column, plane);
    default: return PackPlane<8>(codes, count, shift, column, plane);
  }
}

// A column of a tile of kW8A8, which is zero before.
void PackCodes(const StoredRow& row, int64_t begin, int64_t end, int column, const TileParts& parts,
               std::byte* tile) {
  int32_t sum = 0;
  for (int64_t k = begin; k < end; ++k) {
    const int64_t quad = (k - begin) / kQuadValues, place = (k - begin) % kQuadValues;
    tile[quad * kQuadBytes + column * kQuadValues + place] = static_cast<std::byte>(row.codes[k]);
    sum += static_cast<int8_t>(row.codes[k]);
  }
  std::memcpy(tile + parts.scales + column * sizeof(float), row.scales, sizeof(float));
  std::memcpy(tile + parts.minima + column * sizeof(sum), &sum, sizeof(sum));
}

}  // namespace

LeafBorders LeafBorders::Single(int64_t k) {
  LeafBorders borders;
  borders.begin[1] = static_cast<int32_t>(k);
  return borders;
}

LeafBorders LeafBorders::ForDown(int64_t k) {
  const int64_t n = std::clamp<int64_t>(k / 32, 1, kMaxLeaves);
  const int64_t unit = k % (n * 64) == 0 ? 64 : 32;
  LeafBorders borders;
  borders.num_leaves = static_cast<int>(n);
  for (int64_t i = 0; i < n; ++i) borders.begin[i] = static_cast<int32_t>(i * k / n / unit * unit);
  borders.begin[n] = static_cast<int32_t>(k);
  return borders;
}

LeafBorders LeafBorders::ForOutput(int64_t heads, int64_t head_dim) {
  const int64_t n = std::clamp<int64_t>(heads, 1, kMaxLeaves);
  LeafBorders borders;
  borders.num_leaves = static_cast<int>(n);
  for (int64_t i = 0; i <= n; ++i)
    borders.begin[i] = static_cast<int32_t>(i * heads / n * head_dim);
  return borders;
}

int64_t PackedWeight::StoredTileBytes(int leaf) const {
  const int64_t pairs = (leaves.begin[leaf + 1] - leaves.begin[leaf] + 1) / 2;
  return std::llround(static_cast<double>(pairs * kPanelColumns * 2) *
                      cost::BytesPerElement(*stored));
}

LeafBorders LeafBorders::Slice(int first, int last) const {
  FB_CHECK(0 <= first && first < last && last <= num_leaves, "leaves [{}, {}) of {}", first, last,
           num_leaves);
  LeafBorders slice;
  slice.num_leaves = last - first;
  for (int leaf = first; leaf <= last; ++leaf)
    slice.begin[leaf - first] = begin[leaf] - begin[first];
  slice.leaves_before = leaves_before + first;
  slice.leaves_after = leaves_after + num_leaves - last;
  return slice;
}

template <typename T>
void PackTile(int64_t k_leaf, const T* const rows[kPanelColumns], std::byte* tile) {
  int64_t done = 0;
  if constexpr (std::is_same_v<T, BF16>) done = PackBlocks(k_leaf, rows, tile);
  PackPairs(k_leaf, rows, reinterpret_cast<Pair<T>*>(tile), done, (k_leaf + 1) / 2);
}

template <typename T>
void PackTile(PackedForm form, int64_t k_leaf, const T* const rows[kPanelColumns],
              std::byte* tile) {
  if (form == PackedForm::kPairs) return PackTile(k_leaf, rows, tile);
  if constexpr (std::is_same_v<T, BF16>) {
    PackChunks(k_leaf, rows, tile);
  } else {
    FB_CHECK(false, "chunks hold bf16 alone");
  }
}

void PackTile(TileForm form, int64_t begin, int64_t end, const StoredRow* const rows[kPanelColumns],
              std::byte* tile) {
  const FormTraits& traits = TraitsOf(form);
  const TileParts parts = PartsOf(form, begin, end);
  std::memset(tile, 0, static_cast<size_t>(parts.bytes));
  for (int column = 0; column < kPanelColumns; ++column) {
    if (rows[column] == nullptr) continue;
    const StoredRow& row = *rows[column];
    if (form == TileForm::kW8A8) {
      PackCodes(row, begin, end, column, parts, tile);
      continue;
    }
    const uint8_t* const codes = row.codes + begin;
    PackPlane(traits.low_bits(), codes, end - begin, 0, column, tile);
    if (traits.high_bits() > 0) {
      PackPlane(traits.high_bits(), codes, end - begin, traits.low_bits(), column,
                tile + parts.high);
    }
    const auto copy = [&](const std::byte* from, int64_t first, int64_t count, int bytes,
                          std::byte* to) {
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + (i * kPanelColumns + column) * bytes, from + (first + i) * bytes, bytes);
    };
    copy(row.scales, parts.first_group, parts.num_groups, traits.scale_bytes(),
         tile + parts.scales);
    if (traits.minimum_bytes() > 0) {
      copy(row.minima, parts.first_group, parts.num_groups, traits.minimum_bytes(),
           tile + parts.minima);
    }
    if (traits.outer_scale_bytes() > 0) {
      copy(row.outer_scales, parts.first_outer, parts.num_outer, traits.outer_scale_bytes(),
           tile + parts.outer_scales);
    }
    if (traits.outer_minimum_bytes() > 0) {
      copy(row.outer_minima, parts.first_outer, parts.num_outer, traits.outer_minimum_bytes(),
           tile + parts.outer_minima);
    }
  }
}

template void PackTile(int64_t, const BF16* const*, std::byte*);
template void PackTile(int64_t, const float* const*, std::byte*);
template void PackTile(PackedForm, int64_t, const BF16* const*, std::byte*);
template void PackTile(PackedForm, int64_t, const float* const*, std::byte*);

}  // namespace forebay::kernels
