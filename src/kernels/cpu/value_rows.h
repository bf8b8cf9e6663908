// V in the form that attention multiplies, for caches that store another: rows that are no whole
// vectors, or V inside the keys (KvLayout::values_in_keys), whose pairs are elements and not
// positions:
//
//   keys [elements / 2][32 positions][2]  ->  rows [16 pairs of positions][elements][2]
//
// Two elements of two positions are four neighbours on either side. The two in the middle swap; the
// rest is a transposition of such fours.
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/kv_layout.h"

namespace forebay::kernels {
namespace {

#if defined(__AVX512F__)

constexpr int kTurnElements = 16, kTurnPositions = 16;  // what TurnTile turns at once

// Indices of fours 0, 2, 4, 6 of two rows of keys in turn, or 1, 3, 5, 7, with middles turned.
alignas(64) constexpr int16_t kEvenFours[32] = {0,  2,  1,  3,  32, 34, 33, 35, 8,  10, 9,
                                                11, 40, 42, 41, 43, 16, 18, 17, 19, 48, 50,
                                                49, 51, 24, 26, 25, 27, 56, 58, 57, 59};
alignas(64) constexpr int16_t kOddFours[32] = {4,  6,  5,  7,  36, 38, 37, 39, 12, 14, 13,
                                               15, 44, 46, 45, 47, 20, 22, 21, 23, 52, 54,
                                               53, 55, 28, 30, 29, 31, 60, 62, 61, 63};

// The 4 x 4 lanes of 128 bits, transposed.
FB_INLINE void StoreLanes(const __m512i* from, BF16* to, int64_t stride) {
  const __m512i even = _mm512_shuffle_i32x4(from[0], from[1], 0x88),
                odd = _mm512_shuffle_i32x4(from[0], from[1], 0xDD),
                even2 = _mm512_shuffle_i32x4(from[2], from[3], 0x88),
                odd2 = _mm512_shuffle_i32x4(from[2], from[3], 0xDD);
  _mm512_storeu_si512(to, _mm512_shuffle_i32x4(even, even2, 0x88));
  _mm512_storeu_si512(to + stride, _mm512_shuffle_i32x4(odd, odd2, 0x88));
  _mm512_storeu_si512(to + 2 * stride, _mm512_shuffle_i32x4(even, even2, 0xDD));
  _mm512_storeu_si512(to + 3 * stride, _mm512_shuffle_i32x4(odd, odd2, 0xDD));
}

FB_INLINE void TurnTile(const BF16* keys, BF16* rows, int64_t stride) {
  const __m512i even_fours = _mm512_load_si512(kEvenFours),
                odd_fours = _mm512_load_si512(kOddFours);
  __m512i even[4], odd[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i, keys += 4 * kBlockTokens) {
    const __m512i a = _mm512_loadu_si512(keys), b = _mm512_loadu_si512(keys + 2 * kBlockTokens);
    even[i] = _mm512_permutex2var_epi16(a, even_fours, b);
    odd[i] = _mm512_permutex2var_epi16(a, odd_fours, b);
  }
  StoreLanes(even, rows, 2 * stride);
  StoreLanes(odd, rows + stride, 2 * stride);
}

#else

constexpr int kTurnElements = 8, kTurnPositions = 8;

FB_INLINE void TurnTile(const BF16* keys, BF16* rows, int64_t stride) {
  const __m256i middle = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  __m256i fours[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i, keys += 2 * kBlockTokens) {
    fours[i] =
        _mm256_shuffle_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys)), middle);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i, rows += stride) {
    const __m256i a = i == 0 ? _mm256_unpacklo_epi64(fours[0], fours[1])
                             : _mm256_unpackhi_epi64(fours[0], fours[1]),
                  b = i == 0 ? _mm256_unpacklo_epi64(fours[2], fours[3])
                             : _mm256_unpackhi_epi64(fours[2], fours[3]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows), _mm256_permute2x128_si256(a, b, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows + 2 * stride),
                        _mm256_permute2x128_si256(a, b, 0x31));
  }
}

#endif

// The first `elements` of keys.
template <typename T>
FB_INLINE void TurnPairs(const T* keys, int elements, T* rows, int64_t stride) {
  int j = 0;
  if constexpr (sizeof(T) == sizeof(BF16)) {
    for (; j + kTurnElements <= elements; j += kTurnElements) {
      for (int t = 0; t < kBlockTokens; t += kTurnPositions)
        TurnTile(keys + j * kBlockTokens + 2 * t, rows + t / 2 * stride + 2 * j, stride);
    }
  }
  for (; j < elements; j += 2) {
    const T* from = keys + j * kBlockTokens;
    T* to = rows + 2 * j;
    for (int t = 0; t < kBlockTokens; t += 2, from += 4, to += stride) {
      to[0] = from[0], to[1] = from[2];
      to[2] = from[1], to[3] = from[3];
    }
  }
}

// V of a block from `column` on: 16 rows of columns; columns that are not stored are
// 0.
template <typename T>
FB_INLINE void CopyValues(const KvLayout& layout, const T* keys, int column, int columns, T* rows) {
  const int stored = Min(layout.value_dim - column, columns);
  const bool in_keys = layout.values_in_keys;
  if (in_keys) TurnPairs(keys + column * kBlockTokens, stored, rows, 2 * columns);
  const T* from = keys + layout.key_dim * kBlockTokens + 2 * column;
  for (int pair = 0; pair < kBlockTokens / 2; ++pair) {
    if (!in_keys) __builtin_memcpy(rows, from, static_cast<size_t>(stored) * 2 * sizeof(T));
    for (int j = 2 * stored; j < 2 * columns; ++j) rows[j] = T{};
    from += 2 * layout.value_dim;
    rows += 2 * columns;
  }
}

}  // namespace
}  // namespace forebay::kernels
