// Linear on 256-bit fused multiply-add: register tiles of rows x 8 or 16 or 32 or 64 columns of a
// panel.
#include "kernels/cpu/linear_tile.h"
#include "kernels/expand.h"

namespace forebay::kernels {
namespace {

// The odd (half 0) or even (half 1) elements of the pairs of 8 columns.
FB_INLINE __m256 LoadHalf(const BF16* w, int half) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
  return _mm256_castsi256_ps(
      half == 0 ? _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u)))
                : _mm256_slli_epi32(bits, 16));
}
// In the order 0 1 4 5 2 3 6 7 of the columns: only sums are put back in order.
FB_INLINE __m256 LoadHalf(const float* w, int half) {
  const __m256 a = _mm256_loadu_ps(w), b = _mm256_loadu_ps(w + 8);
  return half == 0 ? _mm256_shuffle_ps(a, b, 0xDD) : _mm256_shuffle_ps(a, b, 0x88);
}
FB_INLINE __m256 Reorder(const BF16*, __m256 sum) { return sum; }
FB_INLINE __m256 Reorder(const float*, __m256 sum) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(sum), 0xD8));
}

template <typename T>
struct Micro {
  using Packed = float;
  static constexpr int kPackedPerPair = 2;
  static constexpr int64_t kPairBytes = kPanelColumns * 2 * sizeof(T);

  static void Pack(const T* const* x, int rows, int64_t elements, float* out) {
    FB_SWITCH_ROWS(rows, PackExpanded, x, elements, out);
  }

  // kRows x 8 kVectors columns of the panel, from w on.
  template <int kRows, int kVectors>
  static FB_INLINE void Columns(const float* x, const T* w, const Extent& extent, float* sums,
                                const Ahead& ahead) {
    const int64_t pairs = extent.pairs;
    __m256 sum[kRows][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        sum[r][c] = extent.resume ? Reorder(w, _mm256_load_ps(sums + r * kPanelColumns + c * 8))
                                  : _mm256_setzero_ps();
      }
    }
    AheadPointer pointer(ahead, kPairBytes, pairs);
    for (int64_t pair = 0; pair < pairs; ++pair, x += 2 * kRows, w += 2 * kPanelColumns) {
      pointer.template Prefetch<kPairBytes / kLineBytes * kVectors / 8>();
      // Half a pair at a time. What there are fewer of, rows or columns, stays in registers.
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        if constexpr (kRows < kVectors) {
          __m256 rows[kRows];
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) rows[r] = _mm256_broadcast_ss(x + half * kRows + r);
#pragma GCC unroll 8
          for (int c = 0; c < kVectors; ++c) {
            const __m256 column = LoadHalf(w + c * 16, half);
#pragma GCC unroll 4
            for (int r = 0; r < kRows; ++r) AddProduct(sum[r][c], rows[r], column);
          }
        } else {
          __m256 columns[kVectors];
#pragma GCC unroll 8
          for (int c = 0; c < kVectors; ++c) columns[c] = LoadHalf(w + c * 16, half);
#pragma GCC unroll 6
          for (int r = 0; r < kRows; ++r) {
            const __m256 row = _mm256_broadcast_ss(x + half * kRows + r);
#pragma GCC unroll 8
            for (int c = 0; c < kVectors; ++c) AddProduct(sum[r][c], row, columns[c]);
          }
        }
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        float* at = sums + r * kPanelColumns + c * 8;
        __m256 total = Reorder(w, sum[r][c]);
        for (int merge = 0; merge < extent.merges; ++merge) {
          at -= kSlotFloats;
          total = _mm256_add_ps(_mm256_load_ps(at), total);
        }
        _mm256_store_ps(at, total);
      }
    }
  }

  // The widest columns whose sums, with what else is live, fit into 16 registers.
  template <int kRows>
  static void Tile(const float* x, const std::byte* w, const Extent& extent, float* sums,
                   const Ahead& ahead) {
    constexpr int kVectors = kRows == 1 ? 8 : kRows <= 3 ? 4 : 2;
    constexpr int kSlices = 8 / kVectors;
    for (int slice = 0; slice < kSlices; ++slice) {
      const Ahead part{ahead.next, false, ahead.part * kSlices + slice, ahead.parts * kSlices};
      Columns<kRows, kVectors>(x, reinterpret_cast<const T*>(w) + slice * kVectors * 16, extent,
                               sums + slice * kVectors * 8, part);
    }
  }

  static void Run(int rows, const float* x, const std::byte* w, const Extent& extent, float* sums,
                  const Ahead& ahead) {
    FB_SWITCH_ROWS(rows, Tile, x, w, extent, sums, ahead);
  }
};

constexpr ExpandFunction kExpand = &avx2::Expand;
constexpr bool kHasMultiplyPart = false;
constexpr MultiplyPartFunction kMultiplyPart = nullptr;

// Eight columns of a quad, which meet rows of codes. Here products of |w| and x with w's sign: two
// of them stay within int16, of w = -128 too.
struct SignedColumns {
  static constexpr bool kOffset = false;

  FB_INLINE explicit SignedColumns(__m256i codes)
      : codes(codes), magnitudes(_mm256_abs_epi8(codes)) {}
  FB_INLINE void AddTo(__m256i& sum, __m256i row) const {
    const __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(row, codes));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }

  __m256i codes, magnitudes;
};

// Where the CPU has that as one instruction (AVX-VNNI), written as assembly since this file is not
// compiled for it.
struct DotColumns {
  static constexpr bool kOffset = true;

  FB_INLINE explicit DotColumns(__m256i codes) : codes(codes) {}
  FB_INLINE void AddTo(__m256i& sum, __m256i row) const {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(row), "x"(codes));
  }

  __m256i codes;
};

template <typename Columns>
struct ProductsOf {
  static constexpr bool kOffset = Columns::kOffset;

  // kRows x 8 kVectors columns, from w on.
  template <int kRows, int kVectors>
  static FB_INLINE void Slice(const uint32_t* x, const std::byte* w, const Extent& extent,
                              float* sums, const Ahead& ahead) {
    __m256i sum[kRows][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        sum[r][c] = extent.resume ? _mm256_load_si256(reinterpret_cast<const __m256i*>(
                                        sums + r * kPanelColumns + c * 8))
                                  : _mm256_setzero_si256();
      }
    }
    AheadPointer pointer(ahead, kQuadBytes, extent.pairs);
    for (int64_t quad = 0; quad < extent.pairs; ++quad, x += kRows, w += kQuadBytes) {
      pointer.template Prefetch<kQuadBytes / kLineBytes * kVectors / 8>();
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        const Columns columns(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + c * 32)));
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r)
          columns.AddTo(sum[r][c], _mm256_set1_epi32(static_cast<int>(x[r])));
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(sums + r * kPanelColumns + c * 8), sum[r][c]);
      }
    }
  }

  template <int kRows>
  static void Tile(const uint32_t* x, const std::byte* w, const Extent& extent, float* sums,
                   const Ahead& ahead) {
    constexpr int kVectors = kRows == 1 ? 8 : kRows <= 3 ? 4 : 2;
    constexpr int kSlices = 8 / kVectors;
    for (int slice = 0; slice < kSlices; ++slice) {
      const Ahead part{ahead.next, false, ahead.part * kSlices + slice, ahead.parts * kSlices};
      Slice<kRows, kVectors>(x, w + slice * kVectors * 32, extent, sums + slice * kVectors * 8,
                             part);
    }
  }
};

}  // namespace
}  // namespace forebay::kernels

#include "kernels/cpu/experts_loop.h"

namespace forebay::kernels::avx2 {
void Linear(const LinearArgs& args, const device::WorkerContext& context) {
  RunLinear<ProductsOf<SignedColumns>>(args, context);
}
void Experts(const ExpertsArgs& args, const device::WorkerContext& context) {
  RunExperts<ProductsOf<SignedColumns>>(args, context);
}
void LinearWithVnni(const LinearArgs& args, const device::WorkerContext& context) {
  RunLinear<ProductsOf<DotColumns>>(args, context);
}
void ExpertsWithVnni(const ExpertsArgs& args, const device::WorkerContext& context) {
  RunExperts<ProductsOf<DotColumns>>(args, context);
}
}  // namespace forebay::kernels::avx2
