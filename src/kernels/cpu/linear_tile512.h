// The register tile of the 512-bit sets: rows (1..6) x 64 columns, 24 of 32 registers hold sums.
#pragma once

#include "kernels/cpu/linear_tile.h"

namespace forebay::kernels {
namespace {

constexpr int64_t kStreamBytes = 8192;  // how far a tile that streams its own weights reads ahead
constexpr int kUnrolledPairs = 4;       // between two looks at what else to prefetch

// kPairBytes of weights a pair; step(sum, x, w) adds a pair to sum[kRows][4].
template <int kRows, int kPackedPerPair, int64_t kPairBytes, typename Packed, typename Step>
FB_INLINE void RunTile512(const Packed* x, const std::byte* w, const Extent& extent, float* sums, const Ahead& ahead,
                          const Step& step) {
  const int64_t pairs = extent.pairs;
  __m512 sum[kRows][4];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      sum[r][c] = extent.resume ? _mm512_load_ps(sums + r * kPanelColumns + c * 16) : _mm512_setzero_ps();
    }
  }
  if (ahead.stream) {
    constexpr int64_t kDistance = kStreamBytes / kPairBytes;
    const int64_t streamed = pairs > kDistance ? pairs - kDistance : 0;
    const char* line = reinterpret_cast<const char*>(w) + kStreamBytes;
    for (int64_t pair = 0; pair < pairs; ++pair, x += kRows * kPackedPerPair, w += kPairBytes, line += kPairBytes) {
      if (pair == streamed) line = reinterpret_cast<const char*>(ahead.next);
#pragma GCC unroll 8
      for (int64_t i = 0; i < kPairBytes; i += kLineBytes) _mm_prefetch(line + i, _MM_HINT_T0);
      step(sum, x, w);
    }
  } else {
    AheadPointer pointer(ahead, kPairBytes, pairs, kUnrolledPairs);
    int64_t pair = 0;
    for (; pair + kUnrolledPairs <= pairs; pair += kUnrolledPairs) {
      pointer.PrefetchStep();
#pragma GCC unroll 4
      for (int i = 0; i < kUnrolledPairs; ++i, x += kRows * kPackedPerPair, w += kPairBytes) step(sum, x, w);
    }
    for (; pair < pairs; ++pair, x += kRows * kPackedPerPair, w += kPairBytes) step(sum, x, w);
  }
  for (int merge = 0; merge < extent.merges; ++merge) {
    sums -= kSlotFloats;
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) sum[r][c] = _mm512_add_ps(_mm512_load_ps(sums + r * kPanelColumns + c * 16), sum[r][c]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) _mm512_store_ps(sums + r * kPanelColumns + c * 16, sum[r][c]);
  }
}

// On fused multiply-add: elements of a pair are expanded to fp32 in registers.
template <typename T>
struct FmaMicro {
  using Packed = float;
  static constexpr int kPackedPerPair = 2;

  static void Pack(const T* x, int64_t stride, int rows, int64_t elements, float* out) {
    FB_SWITCH_ROWS(rows, PackExpanded, x, stride, elements, out);
  }

  template <int kRows>
  static void Tile(const float* x, const std::byte* w, const Extent& extent, float* sums,
                   const Ahead& ahead) {
    RunTile512<kRows, 2, 128 * sizeof(T)>(
        x, w, extent, sums, ahead,
        [](__m512(&sum)[kRows][4], const float* x, const std::byte* w) __attribute__((always_inline)) {
          // Half a pair at a time: beside 24 sums the registers hold 4 columns, a row and the expansion's constants.
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
              for (int c = 0; c < 4; ++c) AddProduct(sum[r][c], row, columns[c]);
            }
          }
        });
  }

  static void Run(int rows, const float* x, const std::byte* w, const Extent& extent, float* sums,
                  const Ahead& ahead) {
    FB_SWITCH_ROWS(rows, Tile, x, w, extent, sums, ahead);
  }
};

}  // namespace
}  // namespace forebay::kernels
