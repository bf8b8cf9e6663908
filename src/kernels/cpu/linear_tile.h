// What the register kernels of all sets share: the packed forms of x, and where to prefetch.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/linear_blocking.h"
#include "kernels/cpu/simd.h"

namespace forebay::kernels {
namespace {

constexpr int64_t kLineBytes = 64;

// Calls f<rows>(args...) for a number of rows known at run time.
#define FB_SWITCH_ROWS(rows, f, ...)           \
  switch (rows) {                              \
    case 1: f<1>(__VA_ARGS__); break;          \
    case 2: f<2>(__VA_ARGS__); break;          \
    case 3: f<3>(__VA_ARGS__); break;          \
    case 4: f<4>(__VA_ARGS__); break;          \
    case 5: f<5>(__VA_ARGS__); break;          \
    default: f<kTileRows>(__VA_ARGS__); break; \
  }
static_assert(kTileRows == 6);

// A run of pairs through the register kernel, and the slots of sums [6][64] that it ends in.
struct Extent {
  int64_t pairs;
  bool resume;  // adds to its slot's content
  // then adds this many lower slots, each to the sum so far, and stores the sum in the lowest
  int merges;
};
constexpr int64_t kSlotFloats = kTileRows * kPanelColumns;

// What a kernel prefetches while it multiplies: the weights that are read next.
struct Ahead {
  const std::byte* next = nullptr;
  // One register tile passes the weights: it streams its own from memory, with `next` after their
  // end.
  bool stream = false;
  // Else the tile's own weights are in the cache, and it prefetches one of `parts` equal parts of
  // `next`.
  int part = 0, parts = 1;
};

// A place that advances through the part, a step every `step_pairs` pairs.
struct AheadPointer {
  const char* line;
  int64_t step;

  FB_INLINE AheadPointer(const Ahead& ahead, int64_t pair_bytes, int64_t pairs,
                         int64_t step_pairs = 1)
      : line(reinterpret_cast<const char*>(ahead.next) +
             pairs * pair_bytes / ahead.parts * ahead.part),
        step(step_pairs * pair_bytes / ahead.parts) {}
  template <int kLines>
  FB_INLINE void Prefetch() {
#pragma GCC unroll 8
    for (int i = 0; i < kLines; ++i) _mm_prefetch(line + i * kLineBytes, _MM_HINT_T0);
    line += step;
  }
  // The lines of a step.
  FB_INLINE void PrefetchStep() {
    const char* const end = line + step;
    const char* at = line;
    do {
      _mm_prefetch(at, _MM_HINT_T0);
      at += kLineBytes;
    } while (at < end);
    line = end;
  }
};

// sum += a b, in place: from the intrinsic GCC 12 makes code that moves sums between registers
// (avx2 at 5 rows in the cache: .58 of the register peak instead of .86).
#if defined(__AVX512F__)
FB_INLINE void AddProduct(__m512& sum, __m512 a, __m512 b) {
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}
#else
FB_INLINE void AddProduct(__m256& sum, __m256 a, __m256 b) {
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
}
#endif

// v[r]: values of row r at 4 consecutive pairs; those of pair i go to out[i * stride + r].
template <int kRows>
FB_INLINE void StoreTransposed(const __m128* v, float* out, int64_t stride) {
  int r = 0;
  if constexpr (kRows >= 4) {
    __m128 a = v[0], b = v[1], c = v[2], d = v[3];
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(out, a);
    _mm_storeu_ps(out + stride, b);
    _mm_storeu_ps(out + 2 * stride, c);
    _mm_storeu_ps(out + 3 * stride, d);
    r = 4;
  }
  if constexpr (kRows % 4 >= 2) {
    const __m128 low = _mm_unpacklo_ps(v[r], v[r + 1]), high = _mm_unpackhi_ps(v[r], v[r + 1]);
    _mm_storel_pi(reinterpret_cast<__m64*>(out + r), low);
    _mm_storeh_pi(reinterpret_cast<__m64*>(out + stride + r), low);
    _mm_storel_pi(reinterpret_cast<__m64*>(out + 2 * stride + r), high);
    _mm_storeh_pi(reinterpret_cast<__m64*>(out + 3 * stride + r), high);
    r += 2;
  }
  if constexpr (kRows % 2 == 1) {
    _mm_store_ss(out + r, v[r]);
    _mm_store_ss(out + stride + r, _mm_movehdup_ps(v[r]));
    _mm_store_ss(out + 2 * stride + r, _mm_unpackhi_ps(v[r], v[r]));
    _mm_store_ss(out + 3 * stride + r, _mm_permute_ps(v[r], 0xFF));
  }
}

FB_INLINE void LoadFour(const BF16* x, __m128& even, __m128& odd) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  even = _mm_castsi128_ps(_mm_slli_epi32(bits, 16));
  odd = _mm_castsi128_ps(_mm_and_si128(bits, _mm_set1_epi32(static_cast<int>(0xFFFF0000u))));
}
FB_INLINE void LoadFour(const float* x, __m128& even, __m128& odd) {
  const __m128 a = _mm_loadu_ps(x), b = _mm_loadu_ps(x + 4);
  even = _mm_shuffle_ps(a, b, 0x88);
  odd = _mm_shuffle_ps(a, b, 0xDD);
}
FB_INLINE float Widen(BF16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  __builtin_memcpy(&result, &bits, 4);
  return result;
}
FB_INLINE float Widen(float value) { return value; }

// [pairs][2][rows] of fp32, the odd element of a pair first: for the kernels that multiply in fp32.
template <int kRows, typename T>
void PackExpanded(const T* const* x, int64_t elements, float* out) {
  int64_t k = 0;
  for (; k + 8 <= elements; k += 8, out += 8 * kRows) {
    __m128 even[kRows], odd[kRows];
    for (int r = 0; r < kRows; ++r) LoadFour(x[r] + k, even[r], odd[r]);
    StoreTransposed<kRows>(odd, out, 2 * kRows);
    StoreTransposed<kRows>(even, out + kRows, 2 * kRows);
  }
  for (; k < elements; k += 2, out += 2 * kRows) {
    for (int r = 0; r < kRows; ++r) {
      out[r] = k + 1 < elements ? Widen(x[r][k + 1]) : 0.0f;
      out[kRows + r] = Widen(x[r][k]);
    }
  }
}

}  // namespace
}  // namespace forebay::kernels
