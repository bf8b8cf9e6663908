// C[m][n] (+)= chain over pairs i of A[m][i] . B[i][n], the odd element of a pair first: both products of attention.
//
//   A [lines][pairs][2], B [pairs][columns][2], C fp32 [lines][columns], columns a multiple of 16
//
// A tile of lines x vectors of 16 columns is held in registers over all pairs; lines and columns are where latency
// hides, never the chain.
#pragma once

#include "kernels/cpu/simd.h"

namespace forebay::kernels {
namespace {

// How this instruction set multiplies pairs of T: A's elements are `Left`, a vector of 16 pairs of B is `Right`.
template <typename T>
struct PairDot {
  using Left = float;
  struct Right {
    Vector even, odd;
  };
  static constexpr int kRightVectors = 2;
  static FB_INLINE Right Load(const T* b) {
    Right right;
    LoadPairs(b, right.even, right.odd);
    return right;
  }
  static FB_INLINE Vector Add(const float* a, const Right& b, Vector sum) {
    return Fma(Vector::Set(a[0]), b.even, Fma(Vector::Set(a[1]), b.odd, sum));
  }
};

#if defined(__AVX512BF16__)
template <>
struct PairDot<BF16> {
  using Left = BF16;
  using Right = __m512i;
  static constexpr int kRightVectors = 1;
  static FB_INLINE Right Load(const BF16* b) { return _mm512_loadu_si512(b); }
  static FB_INLINE Vector Add(const BF16* a, const Right& b, Vector sum) {
    int pair;
    __builtin_memcpy(&pair, a, 4);
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)b)};
  }
};
#endif

template <typename T>
struct PairProductArgs {
  const typename PairDot<T>::Left* a;
  int64_t a_stride;  // elements from line to line
  const T* b;
  int64_t b_stride;  // elements from pair to pair
  int64_t prefetch;  // bytes from b to what will be read next, 0 where nothing is known
  int pairs;
  float* c;
  int64_t c_stride;
  const float* factors;  // [lines] C is multiplied by first; null: C begins at 0
};

template <typename T, int kLines, int kVectors>
__attribute__((noinline)) void PairProductTile(const PairProductArgs<T>& args) {
  using Dot = PairDot<T>;
  Vector sums[kLines][kVectors];
#pragma GCC unroll 12
  for (int m = 0; m < kLines; ++m) {
#pragma GCC unroll 12
    for (int n = 0; n < kVectors; ++n) {
      sums[m][n] = args.factors ? Vector::Load(args.c + m * args.c_stride + n * kLanes) * Vector::Set(args.factors[m])
                                : Vector::Zero();
    }
  }
  const T* b = args.b;
  const typename Dot::Left* a = args.a;
  const int64_t prefetch = args.prefetch;
  for (int i = 0; i < args.pairs; ++i, b += args.b_stride, a += 2) {
    typename Dot::Right right[kVectors];
#pragma GCC unroll 12
    for (int n = 0; n < kVectors; ++n) {
      right[n] = Dot::Load(b + n * kLanes * 2);
      __builtin_prefetch(reinterpret_cast<const char*>(b + n * kLanes * 2) + prefetch, 0, 2);
    }
#pragma GCC unroll 12
    for (int m = 0; m < kLines; ++m) {
#pragma GCC unroll 12
      for (int n = 0; n < kVectors; ++n) sums[m][n] = Dot::Add(a + m * args.a_stride, right[n], sums[m][n]);
    }
  }
#pragma GCC unroll 12
  for (int m = 0; m < kLines; ++m) {
#pragma GCC unroll 12
    for (int n = 0; n < kVectors; ++n) sums[m][n].Store(args.c + m * args.c_stride + n * kLanes);
  }
}

// Lines of a tile that is `vectors` wide: sums, right sides and a broadcast fit the registers.
template <typename T>
constexpr int MaxTileLines(int vectors) {
#if defined(__AVX512F__)
  const int lines = (32 - 1 - vectors * PairDot<T>::kRightVectors) / vectors;
  return lines < 12 ? lines : 12;
#else
  return vectors == 1 ? 5 : 0;  // a Vector is two registers of 16
#endif
}

template <typename T, int kVectors, int kLines = MaxTileLines<T>(kVectors)>
FB_INLINE void RunTile(int lines, const PairProductArgs<T>& args) {
  if (lines == kLines) return PairProductTile<T, kLines, kVectors>(args);
  if constexpr (kLines > 1) RunTile<T, kVectors, kLines - 1>(lines, args);
}

// All lines of a panel of kVectors, in tiles of nearly equal height.
template <typename T, int kVectors>
void RunPanel(int lines, PairProductArgs<T> args) {
  constexpr int kMost = MaxTileLines<T>(kVectors);
  for (int tiles = (lines + kMost - 1) / kMost; tiles > 0; --tiles) {
    const int take = (lines + tiles - 1) / tiles;
    RunTile<T, kVectors>(take, args);
    args.a += take * args.a_stride;
    args.c += take * args.c_stride;
    if (args.factors) args.factors += take;
    lines -= take;
  }
}

template <typename T>
void PairProduct(int lines, int columns, PairProductArgs<T> args) {
  for (int vectors = columns / kLanes; vectors > 0;) {
    int take = 1;
#if defined(__AVX512F__)
    if (vectors >= 8 && lines <= MaxTileLines<T>(8)) {
      RunPanel<T, 8>(lines, args);
      take = 8;
    } else if (vectors >= 4) {
      RunPanel<T, 4>(lines, args);
      take = 4;
    } else if (vectors >= 2) {
      RunPanel<T, 2>(lines, args);
      take = 2;
    } else {
      RunPanel<T, 1>(lines, args);
    }
#else
    RunPanel<T, 1>(lines, args);
#endif
    args.b += take * kLanes * 2;
    args.c += take * kLanes;
    vectors -= take;
  }
}

}  // namespace
}  // namespace forebay::kernels
