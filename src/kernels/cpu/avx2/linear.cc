// Linear on 256-bit fused multiply-add: register tiles of rows x 8 or 16 or 32 or 64 columns of a panel.
#include <immintrin.h>

#include "kernels/cpu/linear_expand.h"
#include "kernels/linear_sets.h"

namespace forebay::kernels {
namespace {

FB_INLINE void LoadHalf(const BF16* w, int half, __m256& columns) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
  columns = _mm256_castsi256_ps(half == 0 ? _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u)))
                                          : _mm256_slli_epi32(bits, 16));
}
// In the order 0 1 4 5 2 3 6 7 of the columns: only sums are put back in order.
FB_INLINE void LoadHalf(const float* w, int half, __m256& columns) {
  const __m256 a = _mm256_loadu_ps(w), b = _mm256_loadu_ps(w + 8);
  columns = half == 0 ? _mm256_shuffle_ps(a, b, 0xDD) : _mm256_shuffle_ps(a, b, 0x88);
}
FB_INLINE __m256 Reorder(const BF16*, __m256 sum) { return sum; }
FB_INLINE __m256 Reorder(const float*, __m256 sum) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(sum), 0xD8));
}

template <typename T>
struct Micro {
  using Packed = float;
  static constexpr int kPackedPerPair = 2;
  static constexpr int64_t kPrefetchBytes = 2048;

  static void Pack(const T* x, int64_t stride, int rows, int64_t elements, float* out) {
    PackExpanded(x, stride, rows, elements, out);
  }

  // Rows x 8 kVectors columns of the panel from w on.
  template <int kRows, int kVectors>
  static FB_INLINE void Columns(const float* x, const T* w, int64_t pairs, bool resume, float* sums) {
    __m256 sum[kRows][kVectors];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        sum[r][c] = resume ? Reorder(w, _mm256_load_ps(sums + r * 64 + c * 8)) : _mm256_setzero_ps();
      }
    }
    for (int64_t pair = 0; pair < pairs; ++pair, x += 2 * kRows, w += 128) {
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; c += 32 / static_cast<int>(8 * sizeof(T)) ) {
        _mm_prefetch(reinterpret_cast<const char*>(w) + kPrefetchBytes + c * 16 * sizeof(T), _MM_HINT_T0);
      }
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        __m256 columns[kVectors];
#pragma GCC unroll 8
        for (int c = 0; c < kVectors; ++c) LoadHalf(w + c * 16, half, columns[c]);
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
          const __m256 row = _mm256_broadcast_ss(x + half * kRows + r);
#pragma GCC unroll 8
          for (int c = 0; c < kVectors; ++c) sum[r][c] = _mm256_fmadd_ps(row, columns[c], sum[r][c]);
        }
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) _mm256_store_ps(sums + r * 64 + c * 8, Reorder(w, sum[r][c]));
    }
  }

  // The widest columns whose sums, with a row and themselves, fit into 16 registers.
  template <int kRows>
  static FB_INLINE void Tile(const float* x, const std::byte* w, int64_t pairs, bool resume, float* sums) {
    constexpr int kVectors = kRows == 1 ? 8 : kRows <= 3 ? 4 : 2;
    for (int c = 0; c < 8; c += kVectors) {
      Columns<kRows, kVectors>(x, reinterpret_cast<const T*>(w) + c * 16, pairs, resume, sums + c * 8);
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

#include "kernels/cpu/linear_loop.h"

namespace forebay::kernels::avx2 {
void Linear(const LinearArgs& args, const device::WorkerContext& context) { RunLinear(args, context); }
}  // namespace forebay::kernels::avx2
