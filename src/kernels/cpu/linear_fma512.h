// Register kernels on 512-bit fused multiply-add, 6 rows x 64 columns: elements of a pair are expanded to fp32 in
// registers, x is packed as fp32, the odd element of a pair before the even one.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/linear_expand.h"

namespace forebay::kernels {
namespace {

template <typename T>
struct FmaMicro {
  using Packed = float;
  static constexpr int kPackedPerPair = 2;
  static constexpr int64_t kPrefetchBytes = 2048;

  static void Pack(const T* x, int64_t stride, int rows, int64_t elements, float* out) {
    PackExpanded(x, stride, rows, elements, out);
  }

  template <int kRows>
  static FB_INLINE void Tile(const float* x, const std::byte* w, int64_t pairs, bool resume, float* sums) {
    constexpr int64_t kPairBytes = 128 * sizeof(T);
    __m512 sum[kRows][4];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        sum[r][c] = resume ? _mm512_load_ps(sums + r * 64 + c * 16) : _mm512_setzero_ps();
      }
    }
    for (int64_t pair = 0; pair < pairs; ++pair, x += 2 * kRows, w += kPairBytes) {
#pragma GCC unroll 8
      for (int64_t line = 0; line < kPairBytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(w + kPrefetchBytes + line), _MM_HINT_T0);
      }
      // Half a pair at a time: 24 sums, 4 columns and a row are all that the registers hold.
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        __m512 columns[4];
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) {
          Vector even, odd;
          LoadPairs(reinterpret_cast<const T*>(w) + c * 32, even, odd);
          columns[c] = half == 0 ? odd.v : even.v;
        }
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
          const __m512 row = _mm512_set1_ps(x[half * kRows + r]);
#pragma GCC unroll 4
          for (int c = 0; c < 4; ++c) sum[r][c] = _mm512_fmadd_ps(row, columns[c], sum[r][c]);
        }
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) _mm512_store_ps(sums + r * 64 + c * 16, sum[r][c]);
    }
  }

  static void Run(int rows, const float* x, const std::byte* w, int64_t pairs, bool resume, float* sums,
                  const std::byte* next) {
    switch (rows) {
      case 1: return Tile<1>(x, w, pairs, resume, sums);
      case 2: return Tile<2>(x, w, pairs, resume, sums);
      case 3: return Tile<3>(x, w, pairs, resume, sums);
      case 4: return Tile<4>(x, w, pairs, resume, sums);
      case 5: return Tile<5>(x, w, pairs, resume, sums);
      default: return Tile<6>(x, w, pairs, resume, sums);
    }
  }
};

}  // namespace
}  // namespace forebay::kernels
