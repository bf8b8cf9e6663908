// 16 lanes of fp32 for each instruction set, with one vocabulary, so that a row-wise kernel is
// written once as a template over the vector type. Every operation gives the same bits on every
// type.
//
// All names lie in an unnamed namespace: a file that includes this is compiled with its own -m
// flags, and none of its functions may be merged by the linker with another file's. For the same
// reason such a file calls no inline function of the standard library and none of other headers
// that the compiler might not inline (test: isa_symbols).
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/exp.h"
#include "tensor/bf16.h"

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#define FB_INLINE inline __attribute__((always_inline))

namespace forebay::kernels {
namespace {

using tensor::BF16;

constexpr int kLanes = 16;

// What Vector is in this file: the widest type that its flags allow.
#if defined(__AVX512F__)

struct Vector {
  __m512 v;
  static FB_INLINE Vector Zero() { return {_mm512_setzero_ps()}; }
  static FB_INLINE Vector Set(float x) { return {_mm512_set1_ps(x)}; }
  static FB_INLINE Vector Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static FB_INLINE Vector Load(const BF16* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  FB_INLINE void Store(float* p) const { _mm512_storeu_ps(p, v); }
  FB_INLINE float First() const { return _mm512_cvtss_f32(v); }
  // Rounds as tensor::ToBF16.
  FB_INLINE void Store(BF16* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), Rounded());
  }

 private:
  FB_INLINE __m256i Rounded() const {
#if defined(__AVX512BF16__)
    return (__m256i)_mm512_cvtneps_pbh(v);
#else
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
    const __m512i upper = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
    r = _mm512_mask_and_epi32(r, _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x00800000)),
                              upper, _mm512_set1_epi32(0x8000));
    r = _mm512_mask_or_epi32(r, _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7F800000)),
                             upper, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(r);
#endif
  }
};

FB_INLINE Vector operator+(Vector a, Vector b) { return {_mm512_add_ps(a.v, b.v)}; }
FB_INLINE Vector operator-(Vector a, Vector b) { return {_mm512_sub_ps(a.v, b.v)}; }
FB_INLINE Vector operator*(Vector a, Vector b) { return {_mm512_mul_ps(a.v, b.v)}; }
FB_INLINE Vector operator/(Vector a, Vector b) { return {_mm512_div_ps(a.v, b.v)}; }
FB_INLINE Vector Negate(Vector a) {
  return {_mm512_castsi512_ps(
      _mm512_xor_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(INT32_MIN)))};
}
// a b + c, rounded once.
FB_INLINE Vector Fma(Vector a, Vector b, Vector c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// a > b ? a : b
FB_INLINE Vector Max(Vector a, Vector b) { return {_mm512_max_ps(a.v, b.v)}; }
// a < b ? x : y
FB_INLINE Vector SelectLess(Vector a, Vector b, Vector x, Vector y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
// a <= b ? x : y
FB_INLINE Vector SelectLessEqual(Vector a, Vector b, Vector x, Vector y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ), y.v, x.v)};
}
// Bits of p + (bits of t << 23): p times two to the integer in t's low bits.
FB_INLINE Vector AddExponent(Vector p, Vector t) {
  return {_mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(p.v), _mm512_slli_epi32(_mm512_castps_si512(t.v), 23)))};
}
// Lane i of x where begin <= i < end, else y.
FB_INLINE Vector SelectRange(int begin, int end, Vector x, Vector y) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 mask = _mm512_mask_cmplt_epi32_mask(
      _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(begin)), lane, _mm512_set1_epi32(end));
  return {_mm512_mask_blend_ps(mask, y.v, x.v)};
}
// The halves of 16 pairs of bf16: even elements, odd elements.
FB_INLINE void LoadPairs(const BF16* p, Vector& even, Vector& odd) {
  const __m512i bits = _mm512_loadu_si512(p);
  even = {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16))};
  odd = {_mm512_castsi512_ps(
      _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))))};
}
FB_INLINE void LoadPairs(const float* p, Vector& even, Vector& odd) {
  const __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16);
  const __m512i step = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  even = {_mm512_permutex2var_ps(a, step, b)};
  odd = {_mm512_permutex2var_ps(a, _mm512_or_si512(step, _mm512_set1_epi32(1)), b)};
}
// 16 rows of 16 pairs, `from_stride` apart, transposed: columns `to_stride` apart, of which `n`
// pairs are stored.
FB_INLINE void TransposePairs(const BF16* from, int64_t from_stride, int n, BF16* to,
                              int64_t to_stride) {
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(from + i * from_stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  // a[i + c], 128-bit lane l: rows i to i + 3 of column 4 l + c.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  const __mmask16 mask = static_cast<__mmask16>((1u << n) - 1);
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i even = _mm512_shuffle_i32x4(a[c], a[c + 4], 0x88),
                  odd = _mm512_shuffle_i32x4(a[c], a[c + 4], 0xDD);
    const __m512i even2 = _mm512_shuffle_i32x4(a[c + 8], a[c + 12], 0x88);
    const __m512i odd2 = _mm512_shuffle_i32x4(a[c + 8], a[c + 12], 0xDD);
    BF16* column = to + c * to_stride;
    _mm512_mask_storeu_epi32(column, mask, _mm512_shuffle_i32x4(even, even2, 0x88));
    _mm512_mask_storeu_epi32(column + 4 * to_stride, mask, _mm512_shuffle_i32x4(odd, odd2, 0x88));
    _mm512_mask_storeu_epi32(column + 8 * to_stride, mask, _mm512_shuffle_i32x4(even, even2, 0xDD));
    _mm512_mask_storeu_epi32(column + 12 * to_stride, mask, _mm512_shuffle_i32x4(odd, odd2, 0xDD));
  }
}
// 16 pairs of which only one half is written, the even elements or the odd ones.
FB_INLINE void StoreHalves(const BF16* from, int half, BF16* to) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  _mm512_mask_storeu_epi16(to, half == 0 ? 0x55555555u : 0xAAAAAAAAu,
                           half == 0 ? wide : _mm512_slli_epi32(wide, 16));
}
// 16 pairs.
FB_INLINE void StorePairs(const BF16* even, const BF16* odd, BF16* to) {
  const __m512i low =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(even)));
  const __m512i high =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(odd)));
  _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}
// The fixed tree: lanes i and i + 8, then i + 4, i + 2, i + 1.
template <typename Op>
FB_INLINE float ReduceTree(Vector a, Op op) {
  a = op(a, Vector{_mm512_shuffle_f32x4(a.v, a.v, 0x4E)});
  a = op(a, Vector{_mm512_shuffle_f32x4(a.v, a.v, 0xB1)});
  a = op(a, Vector{_mm512_permute_ps(a.v, 0x4E)});
  a = op(a, Vector{_mm512_permute_ps(a.v, 0xB1)});
  return a.First();
}
// Lane i: ReduceTree of row[i]; 16 rows, which are overwritten.
template <typename Op>
FB_INLINE Vector ReduceRows(Vector* row, Op op) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m512 a = row[i].v, b = row[i + 8].v;
    row[i] = op(Vector{_mm512_shuffle_f32x4(a, b, 0x44)}, Vector{_mm512_shuffle_f32x4(a, b, 0xEE)});
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = row[i].v, b = row[i + 4].v;
    row[i] = op(Vector{_mm512_shuffle_f32x4(a, b, 0x88)}, Vector{_mm512_shuffle_f32x4(a, b, 0xDD)});
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512d a = _mm512_castps_pd(row[i].v), b = _mm512_castps_pd(row[i + 2].v);
    row[i] = op(Vector{_mm512_castpd_ps(_mm512_unpacklo_pd(a, b))},
                Vector{_mm512_castpd_ps(_mm512_unpackhi_pd(a, b))});
  }
  const __m512 a = row[0].v, b = row[1].v;
  const Vector last =
      op(Vector{_mm512_shuffle_ps(a, b, 0x88)}, Vector{_mm512_shuffle_ps(a, b, 0xDD)});
  const __m512i lane_of_row =
      _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
  return {_mm512_permutexvar_ps(lane_of_row, last.v)};
}
FB_INLINE float SquareRoot(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

#elif defined(__AVX2__) && defined(__FMA__)

struct Vector {
  __m256 lo, hi;
  static FB_INLINE Vector Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static FB_INLINE Vector Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static FB_INLINE Vector Load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
  }
  static FB_INLINE Vector Load(const BF16* p) { return {Widened(p), Widened(p + 8)}; }
  FB_INLINE float First() const { return _mm256_cvtss_f32(lo); }
  FB_INLINE void Store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  // Rounds as tensor::ToBF16.
  FB_INLINE void Store(BF16* p) const {
    const __m256i packed = _mm256_packus_epi32(Rounded(lo), Rounded(hi));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
  }

 private:
  static FB_INLINE __m256 Widened(const BF16* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static FB_INLINE __m256i Rounded(__m256 v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i r = _mm256_srli_epi32(
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
    r = _mm256_blendv_epi8(r, _mm256_and_si256(upper, _mm256_set1_epi32(0x8000)),
                           _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude));
    return _mm256_blendv_epi8(r, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)),
                              _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000)));
  }
};

FB_INLINE Vector operator+(Vector a, Vector b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
FB_INLINE Vector operator-(Vector a, Vector b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
FB_INLINE Vector operator*(Vector a, Vector b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
FB_INLINE Vector operator/(Vector a, Vector b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
FB_INLINE Vector Negate(Vector a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}
// a b + c, rounded once.
FB_INLINE Vector Fma(Vector a, Vector b, Vector c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
// a > b ? a : b
FB_INLINE Vector Max(Vector a, Vector b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
// a < b ? x : y
FB_INLINE Vector SelectLess(Vector a, Vector b, Vector x, Vector y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
// a <= b ? x : y
FB_INLINE Vector SelectLessEqual(Vector a, Vector b, Vector x, Vector y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LE_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LE_OQ))};
}
// Bits of p + (bits of t << 23): p times two to the integer in t's low bits.
FB_INLINE __m256 AddExponent(__m256 p, __m256 t) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}
FB_INLINE Vector AddExponent(Vector p, Vector t) {
  return {AddExponent(p.lo, t.lo), AddExponent(p.hi, t.hi)};
}
// Lane i of x where begin <= i < end, else y.
FB_INLINE __m256 SelectRange(__m256i lane, int begin, int end, __m256 x, __m256 y) {
  const __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane);
  const __m256i in = _mm256_andnot_si256(before, _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
  return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(in));
}
FB_INLINE Vector SelectRange(int begin, int end, Vector x, Vector y) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {SelectRange(lane, begin, end, x.lo, y.lo),
          SelectRange(lane, begin - 8, end - 8, x.hi, y.hi)};
}
// The halves of 16 pairs of bf16: even elements, odd elements.
FB_INLINE void LoadPairs(const BF16* p, Vector& even, Vector& odd) {
  const __m256i lo = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i hi = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16));
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  even = {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
  odd = {_mm256_castsi256_ps(_mm256_and_si256(lo, upper)),
         _mm256_castsi256_ps(_mm256_and_si256(hi, upper))};
}
FB_INLINE void LoadPairs(const float* p, __m256& even, __m256& odd) {
  const __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
  const __m256 e = _mm256_shuffle_ps(a, b, 0x88), o = _mm256_shuffle_ps(a, b, 0xDD);
  even = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(e), 0xD8));
  odd = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(o), 0xD8));
}
FB_INLINE void LoadPairs(const float* p, Vector& even, Vector& odd) {
  LoadPairs(p, even.lo, odd.lo);
  LoadPairs(p + 16, even.hi, odd.hi);
}
// The fixed tree: lanes i and i + 8, then i + 4, i + 2, i + 1.
template <typename Op>
FB_INLINE float ReduceTree(Vector a, Op op) {
  Vector b = op(a, Vector{a.hi, a.lo});
  b = op(b, Vector{_mm256_permute2f128_ps(b.lo, b.lo, 1), b.hi});
  b = op(b, Vector{_mm256_permute_ps(b.lo, 0x4E), b.hi});
  b = op(b, Vector{_mm256_permute_ps(b.lo, 0xB1), b.hi});
  return b.First();
}
// Lane i: ReduceTree of row[i]; 16 rows.
template <typename Op>
FB_INLINE Vector ReduceRows(const Vector* row, Op op) {
  alignas(64) float results[kLanes];
  for (int i = 0; i < kLanes; ++i) results[i] = ReduceTree(row[i], op);
  return Vector::Load(results);
}
FB_INLINE float SquareRoot(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

#endif

#if defined(__AVX2__) || defined(__AVX512F__)

FB_INLINE float ReduceAdd(Vector a) {
  return ReduceTree(
      a, [](Vector x, Vector y) __attribute__((always_inline)) { return x + y; });
}
// Lane i: the greatest of row[i]; 16 rows, which may be overwritten.
FB_INLINE Vector ReduceMax(Vector* row) {
  return ReduceRows(
      row, [](Vector x, Vector y) __attribute__((always_inline)) { return Max(x, y); });
}

// The first n elements, the other lanes 0.
template <typename T>
FB_INLINE Vector LoadPart(const T* p, int64_t n) {
  if (n >= kLanes) return Vector::Load(p);
  alignas(64) T part[kLanes] = {};
  __builtin_memcpy(part, p, static_cast<size_t>(n) * sizeof(T));
  return Vector::Load(part);
}
// Rounds to T and stores the first n lanes.
template <typename T>
FB_INLINE void StorePart(T* p, Vector v, int64_t n) {
  if (n >= kLanes) return v.Store(p);
  alignas(64) T part[kLanes];
  v.Store(part);
  __builtin_memcpy(p, part, static_cast<size_t>(n) * sizeof(T));
}

// Copies elements 2 i + half; the others become 0. `n` is a multiple of 32.
FB_INLINE void CopyHalves(const BF16* from, int half, int64_t n, BF16* to) {
  const auto mask = half == 0 ? 0x0000FFFFu : 0xFFFF0000u;
#if defined(__AVX512F__)
  const __m512i masks = _mm512_set1_epi32(static_cast<int>(mask));
  for (int64_t i = 0; i < n; i += 32)
    _mm512_storeu_si512(to + i, _mm512_and_si512(_mm512_loadu_si512(from + i), masks));
#else
  const __m256i masks = _mm256_set1_epi32(static_cast<int>(mask));
  for (int64_t i = 0; i < n; i += 16) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_and_si256(pairs, masks));
  }
#endif
}
FB_INLINE void CopyHalves(const float* from, int half, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += 2) {
    to[i + half] = from[i + half];
    to[i + 1 - half] = 0;
  }
}

// Rounded to T, as fp32.
template <typename T>
FB_INLINE Vector Rounded(Vector v);
template <>
FB_INLINE Vector Rounded<float>(Vector v) {
  return v;
}
template <>
FB_INLINE Vector Rounded<BF16>(Vector v) {
  alignas(64) BF16 part[kLanes];
  v.Store(part);
  return Vector::Load(part);
}

FB_INLINE int32_t Min(int32_t a, int32_t b) { return a < b ? a : b; }
FB_INLINE int32_t Max(int32_t a, int32_t b) { return a > b ? a : b; }

// As kernels::Exp, lane by lane, for lanes that are not above 0. NaN stays NaN if the low 9 bits of
// its payload are zero, as those of every invalid operation and of every bf16 are.
FB_INLINE Vector ExpNotAboveZero(Vector x) {
  using C = ExpConstants;
  const Vector round = Vector::Set(C::kRound), one = Vector::Set(1.0f);
  const Vector t = Fma(x, Vector::Set(C::kLog2E), round);
  const Vector n = t - round;
  const Vector r = Fma(n, Vector::Set(-C::kLn2Low), Fma(n, Vector::Set(-C::kLn2High), x));
  Vector q = Vector::Set(C::kQ[4]);
#pragma GCC unroll 4
  for (int i = 3; i >= 0; --i) q = Fma(q, r, Vector::Set(C::kQ[i]));
  const Vector p = Fma(Fma(q, r, one), r, one);
  return SelectLess(x, Vector::Set(C::kLowest), Vector::Zero(), AddExponent(p, t));
}

// As kernels::Exp, lane by lane.
FB_INLINE Vector Exp(Vector x) {
  const Vector highest = Vector::Set(ExpConstants::kHighest),
               infinity = Vector::Set(__builtin_inff());
  return SelectLessEqual(x, highest, ExpNotAboveZero(x), x + infinity);
}

// As kernels::Sigmoid and Silu, lane by lane.
FB_INLINE Vector Sigmoid(Vector x) {
  const Vector one = Vector::Set(1.0f);
  return one / (one + Exp(Negate(x)));
}
FB_INLINE Vector Silu(Vector x) { return x / (Vector::Set(1.0f) + Exp(Negate(x))); }

// As kernels::Softplus, lane by lane.
FB_INLINE Vector Softplus(Vector x) {
  using C = SoftplusConstants;
  const Vector zero = Vector::Zero();
  const Vector u = Exp(SelectLess(x, zero, x, Negate(x)));
  const Vector s = u / (Vector::Set(2.0f) + u), square = s * s;
  Vector sum = Vector::Set(C::kOdd[7]);
#pragma GCC unroll 8
  for (int i = 6; i >= 0; --i) sum = Fma(sum, square, Vector::Set(C::kOdd[i]));
  return Fma(s + s, sum, SelectLess(zero, x, x, zero));
}

// As kernels::Cap, Gelu, ErfGelu, ReluSquared, ClampedSilu and ClampedUp, lane by lane.
FB_INLINE Vector Cap(Vector x, Vector c) {
  const Vector one = Vector::Set(1.0f), two = Vector::Set(2.0f), part = x / c;
  return c * (one - two / (Exp(part + part) + one));
}
FB_INLINE Vector Gelu(Vector x) {
  using C = GeluConstants;
  const Vector one = Vector::Set(1.0f);
  const Vector u = x * Fma(x * x, Vector::Set(C::kCubic), one) * Vector::Set(C::kTwoRoot);
  return x / (one + Exp(Negate(u)));
}
FB_INLINE Vector ErfGelu(Vector x) {
  using C = ErfGeluConstants;
  const Vector one = Vector::Set(1.0f), zero = Vector::Zero();
  const Vector size = SelectLess(x, zero, Negate(x), x), z = size * Vector::Set(C::kHalfRoot);
  const Vector t = one / Fma(z, Vector::Set(C::kC), one);
  Vector p = Vector::Set(C::kP[4]);
#pragma GCC unroll 4
  for (int i = 3; i >= 0; --i) p = Fma(p, t, Vector::Set(C::kP[i]));
  const Vector tail = p * t * Exp(Negate(z * z)) * (size * Vector::Set(0.5f));
  return SelectLess(x, zero, zero, x) - tail;
}
FB_INLINE Vector ReluSquared(Vector x) {
  const Vector zero = Vector::Zero(), above = SelectLess(x, zero, zero, x);
  return above * above;
}
FB_INLINE Vector ClampedSilu(Vector x) {
  using C = ClampedSiluConstants;
  const Vector limit = Vector::Set(C::kLimit), gate = SelectLess(limit, x, limit, x);
  return gate / (Vector::Set(1.0f) + Exp(Negate(gate * Vector::Set(C::kSlope))));
}
FB_INLINE Vector ClampedUp(Vector x) {
  using C = ClampedSiluConstants;
  const Vector limit = Vector::Set(C::kLimit), least = Vector::Set(-C::kLimit);
  const Vector below = SelectLess(limit, x, limit, x);
  return SelectLess(below, least, least, below) + Vector::Set(1.0f);
}

#endif

}  // namespace
}  // namespace forebay::kernels
