// The register tile of the 512-bit sets: rows (1..6) x 64 columns, 24 of 32 registers hold sums.
#pragma once

#include "kernels/cpu/linear_tile.h"
#include "kernels/tile_form.h"

namespace forebay::kernels {
namespace {

constexpr int64_t kStreamBytes = 8192;  // how far a tile that streams its own weights reads ahead
constexpr int kUnrolledPairs = 4;       // between two looks at what else to prefetch

// How 16 pairs of kRows rows become vectors in packed order: [16][kRows] of pairs where kParts is
// 1, [16][2][kRows] of fp32 where it is 2, the odd element of a pair first.
template <int kRows, int kParts>
struct PackOrder {
  static constexpr int kVectors = kRows * kParts, kRowPairs = (kRows + 1) / 2;
  // Where the vector's lanes are in rows (2 i, 2 i + 1), laid end to end.
  alignas(64) int32_t index[kVectors][16] = {};
  alignas(64) int32_t shift[kVectors][16] = {};  // for the lanes that take the even element
  // Lanes of the vector that come from the i-th two rows.
  __mmask16 lanes[kVectors][kRowPairs] = {};

  constexpr PackOrder() {
    for (int i = 0; i < 16 * kVectors; ++i) {
      const int pair = i / kVectors, row = i % kRows;
      index[i / 16][i % 16] = row % 2 * 16 + pair;
      shift[i / 16][i % 16] = i / kRows % kParts * 16;
      lanes[i / 16][row / 2] = static_cast<__mmask16>(lanes[i / 16][row / 2] | 1 << i % 16);
    }
  }
};

// 16 pairs of each row from element `from` on, or the first (elements + 1) / 2 of them, with +0
// behind the last element.
template <int kRows, int kParts, bool kWhole>
FB_INLINE void Pack16BF16Pairs(const BF16* const* x, int64_t from, int64_t elements,
                               uint32_t* out) {
  static constexpr PackOrder<kRows, kParts> kOrder;
  __m512i rows[kRows + 1];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    rows[r] = kWhole ? _mm512_loadu_si512(x[r] + from)
                     : _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1u << elements) - 1),
                                                x[r] + from);
  }
  rows[kRows] = rows[kRows - 1];
#pragma GCC unroll 12
  for (int j = 0; j < kOrder.kVectors; ++j) {
    const __m512i index = _mm512_load_si512(kOrder.index[j]);
    __m512i packed = _mm512_permutex2var_epi32(rows[0], index, rows[1]);
#pragma GCC unroll 2
    for (int i = 1; i < kOrder.kRowPairs; ++i) {
      const __m512i two = _mm512_permutex2var_epi32(rows[2 * i], index, rows[2 * i + 1]);
      packed = _mm512_mask_blend_epi32(kOrder.lanes[j][i], packed, two);
    }
    if (kParts == 2) {
      packed = _mm512_and_si512(_mm512_sllv_epi32(packed, _mm512_load_si512(kOrder.shift[j])),
                                _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)));
    }
    if (kWhole) {
      _mm512_storeu_si512(out + 16 * j, packed);
    } else {
      const int64_t left = (elements + 1) / 2 * kOrder.kVectors - 16 * j;
      const uint32_t stored = left >= 16 ? 0xFFFFu : left <= 0 ? 0u : (1u << left) - 1;
      _mm512_mask_storeu_epi32(out + 16 * j, static_cast<__mmask16>(stored), packed);
    }
  }
}

// [pairs][rows] of bf16 pairs, as the weights' order; with kParts 2 [pairs][2][rows] of fp32.
template <int kRows, int kParts = 1>
void PackBF16Pairs(const BF16* const* x, int64_t elements, uint32_t* out) {
  int64_t k = 0;
  for (; k + 32 <= elements; k += 32, out += 16 * kRows * kParts) {
    Pack16BF16Pairs<kRows, kParts, true>(x, k, 32, out);
  }
  if (k < elements) Pack16BF16Pairs<kRows, kParts, false>(x, k, elements - k, out);
}

template <int kRows>
void PackAsF32(const BF16* const* x, int64_t elements, float* out) {
  PackBF16Pairs<kRows, 2>(x, elements, reinterpret_cast<uint32_t*>(out));
}
template <int kRows>
void PackAsF32(const float* const* x, int64_t elements, float* out) {
  PackExpanded<kRows>(x, elements, out);
}

// kPairBytes of weights a pair; step(sum, x, w) adds a pair to sum[kRows][4].
template <int kRows, int kPackedPerPair, int64_t kPairBytes, typename Packed, typename Step>
FB_INLINE void RunTile512(const Packed* x, const std::byte* w, const Extent& extent, float* sums,
                          const Ahead& ahead, const Step& step) {
  const int64_t pairs = extent.pairs;
  __m512 sum[kRows][4];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      sum[r][c] =
          extent.resume ? _mm512_load_ps(sums + r * kPanelColumns + c * 16) : _mm512_setzero_ps();
    }
  }
  if (ahead.stream) {
    constexpr int64_t kDistance = kStreamBytes / kPairBytes;
    const int64_t streamed = pairs > kDistance ? pairs - kDistance : 0;
    const char* line = reinterpret_cast<const char*>(w) + kStreamBytes;
    for (int64_t pair = 0; pair < pairs;
         ++pair, x += kRows * kPackedPerPair, w += kPairBytes, line += kPairBytes) {
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
      for (int i = 0; i < kUnrolledPairs; ++i, x += kRows * kPackedPerPair, w += kPairBytes)
        step(sum, x, w);
    }
    for (; pair < pairs; ++pair, x += kRows * kPackedPerPair, w += kPairBytes) step(sum, x, w);
  }
  for (int merge = 0; merge < extent.merges; ++merge) {
    sums -= kSlotFloats;
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c)
        sum[r][c] = _mm512_add_ps(_mm512_load_ps(sums + r * kPanelColumns + c * 16), sum[r][c]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) _mm512_store_ps(sums + r * kPanelColumns + c * 16, sum[r][c]);
  }
}

// Products of int8 layers where the CPU has them as one instruction (VNNI), written as assembly
// since avx512f's files are not compiled for it.
struct DotProducts {
  static constexpr bool kOffset = true;

  static FB_INLINE void Add(__m512& sum, __m512i row, __m512i column) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(row), "v"(column));
  }
  template <int kRows>
  static void Tile(const uint32_t* x, const std::byte* w, const Extent& extent, float* sums,
                   const Ahead& ahead) {
    RunTile512<kRows, 1, kQuadBytes>(
        x, w, extent, sums, ahead,
        [](__m512(&sum)[kRows][4], const uint32_t* x, const std::byte* w)
            __attribute__((always_inline)) {
              __m512i columns[4];
#pragma GCC unroll 4
              for (int c = 0; c < 4; ++c) columns[c] = _mm512_loadu_si512(w + c * 64);
#pragma GCC unroll 6
              for (int r = 0; r < kRows; ++r) {
                const __m512i row = _mm512_set1_epi32(static_cast<int>(x[r]));
#pragma GCC unroll 4
                for (int c = 0; c < 4; ++c) Add(sum[r][c], row, columns[c]);
              }
            });
  }
};

// On fused multiply-add: elements of a pair are expanded to fp32 in registers.
template <typename T>
struct FmaMicro {
  using Packed = float;
  static constexpr int kPackedPerPair = 2;

  static void Pack(const T* const* x, int rows, int64_t elements, float* out) {
    FB_SWITCH_ROWS(rows, PackAsF32, x, elements, out);
  }

  template <int kRows>
  static void Tile(const float* x, const std::byte* w, const Extent& extent, float* sums,
                   const Ahead& ahead) {
    RunTile512<kRows, 2, 128 * sizeof(T)>(
        x, w, extent, sums, ahead,
        [](__m512(&sum)[kRows][4], const float* x, const std::byte* w)
            __attribute__((always_inline)) {
    // Half a pair at a time: beside 24 sums the registers hold 4 columns, a row and the expansion's
    // constants.
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
