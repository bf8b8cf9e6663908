#include "kernels/packed_weight.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "tensor/bf16.h"

namespace forebay::kernels {
namespace {

using tensor::BF16;

// tensor::ToBF16 of four values, in the low halves of four 32-bit lanes.
__m128i RoundToBF16(__m128 values) {
  const __m128i bits = _mm_castps_si128(values);
  const __m128i magnitude = _mm_and_si128(bits, _mm_set1_epi32(0x7FFFFFFF));
  const __m128i upper = _mm_srli_epi32(bits, 16);
  const __m128i odd = _mm_and_si128(upper, _mm_set1_epi32(1));
  const __m128i rounded = _mm_srli_epi32(_mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7FFF)), odd), 16);
  const __m128i quiet = _mm_or_si128(upper, _mm_set1_epi32(0x40));
  const __m128i zero = _mm_and_si128(upper, _mm_set1_epi32(0x8000));
  const __m128i is_nan = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7F800000));
  const __m128i is_tiny = _mm_cmplt_epi32(magnitude, _mm_set1_epi32(0x00800000));
  __m128i result = _mm_or_si128(_mm_and_si128(is_nan, quiet), _mm_andnot_si128(is_nan, rounded));
  result = _mm_or_si128(_mm_and_si128(is_tiny, zero), _mm_andnot_si128(is_tiny, result));
  return result;
}

// Eight consecutive values of a row as four bf16 pairs; zeros for an unused column.
__m128i LoadPairs(const float* row, int64_t k) {
  if (row == nullptr) return _mm_setzero_si128();
  const __m128 low = _mm_loadu_ps(row + k), high = _mm_loadu_ps(row + k + 4);
  const __m128i even = RoundToBF16(_mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0)));
  const __m128i odd = RoundToBF16(_mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1)));
  return _mm_or_si128(even, _mm_slli_epi32(odd, 16));
}

float At(const float* row, int64_t k, int64_t k_leaf) { return row != nullptr && k < k_leaf ? row[k] : 0.0f; }

// Pairs [first, last) of all columns, one element at a time.
template <typename T>
void PackPairs(int64_t k_leaf, const float* const rows[kPanelColumns], T* tile, int64_t first, int64_t last) {
  for (int64_t pair = first; pair < last; ++pair) {
    for (int c = 0; c < kPanelColumns; ++c) {
      T* out = tile + (pair * kPanelColumns + c) * 2;
      out[0] = tensor::RoundTo<T>(At(rows[c], 2 * pair, k_leaf));
      out[1] = tensor::RoundTo<T>(At(rows[c], 2 * pair + 1, k_leaf));
    }
  }
}

// Blocks of 4 columns x 4 pairs are transposed in registers; 16 columns at a time fill whole cache lines.
int64_t PackBlocksBF16(int64_t k_leaf, const float* const rows[kPanelColumns], std::byte* tile) {
  const int64_t blocks = k_leaf / 8;
  for (int64_t block = 0; block < blocks; ++block) {
    for (int c = 0; c < kPanelColumns; c += 4) {
      __m128 p0 = _mm_castsi128_ps(LoadPairs(rows[c], block * 8));
      __m128 p1 = _mm_castsi128_ps(LoadPairs(rows[c + 1], block * 8));
      __m128 p2 = _mm_castsi128_ps(LoadPairs(rows[c + 2], block * 8));
      __m128 p3 = _mm_castsi128_ps(LoadPairs(rows[c + 3], block * 8));
      _MM_TRANSPOSE4_PS(p0, p1, p2, p3);
      float* out = reinterpret_cast<float*>(tile) + block * 4 * kPanelColumns + c;
      _mm_storeu_ps(out, p0);
      _mm_storeu_ps(out + kPanelColumns, p1);
      _mm_storeu_ps(out + 2 * kPanelColumns, p2);
      _mm_storeu_ps(out + 3 * kPanelColumns, p3);
    }
  }
  return blocks * 4;
}

// A pair of fp32 is moved as one 64-bit value.
int64_t PackBlocksF32(int64_t k_leaf, const float* const rows[kPanelColumns], std::byte* tile) {
  const int64_t blocks = k_leaf / 8;
  for (int64_t block = 0; block < blocks; ++block) {
    for (int c = 0; c < kPanelColumns; ++c) {
      std::byte* out = tile + (block * 4 * kPanelColumns + c) * 8;
      for (int pair = 0; pair < 4; ++pair) {
        uint64_t value = 0;
        if (rows[c] != nullptr) std::memcpy(&value, rows[c] + block * 8 + pair * 2, 8);
        std::memcpy(out + pair * kPanelColumns * 8, &value, 8);
      }
    }
  }
  return blocks * 4;
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
  for (int64_t i = 0; i <= n; ++i) borders.begin[i] = static_cast<int32_t>(i * heads / n * head_dim);
  return borders;
}

LeafBorders LeafBorders::Slice(int first, int last) const {
  FB_CHECK(0 <= first && first < last && last <= num_leaves, "leaves [{}, {}) of {}", first, last, num_leaves);
  LeafBorders slice;
  slice.num_leaves = last - first;
  for (int leaf = first; leaf <= last; ++leaf) slice.begin[leaf - first] = begin[leaf] - begin[first];
  slice.leaves_before = leaves_before + first;
  slice.leaves_after = leaves_after + num_leaves - last;
  return slice;
}

void PackTile(tensor::DType dtype, int64_t k_leaf, const float* const rows[kPanelColumns], std::byte* tile) {
  const int64_t pairs = (k_leaf + 1) / 2;
  if (dtype == tensor::DType::kBF16) {
    const int64_t done = PackBlocksBF16(k_leaf, rows, tile);
    PackPairs(k_leaf, rows, reinterpret_cast<BF16*>(tile), done, pairs);
  } else {
    FB_CHECK(dtype == tensor::DType::kF32, "no packed form of {}", tensor::Name(dtype));
    const int64_t done = PackBlocksF32(k_leaf, rows, tile);
    PackPairs(k_leaf, rows, reinterpret_cast<float*>(tile), done, pairs);
  }
}

}  // namespace forebay::kernels
