// 16 lanes of 32 bits, beside Vector, and values that are stored in codes: of int8, with a scale,
// and of fp8.
#pragma once

#include "kernels/cpu/simd.h"

namespace forebay::kernels {
namespace {

#if defined(__AVX512F__)

struct Lanes {
  __m512i v;
  static FB_INLINE Lanes Load(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
  // 16 bytes, each with its sign or without.
  static FB_INLINE Lanes SignedBytes(const std::byte* p) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  static FB_INLINE Lanes UnsignedBytes(const std::byte* p) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  static FB_INLINE Lanes BitsOf(Vector a) { return {_mm512_castps_si512(a.v)}; }
  // The low bytes.
  FB_INLINE __m128i LowBytes() const { return _mm512_cvtepi32_epi8(v); }
  FB_INLINE Lanes ShiftedLeftBy(int bits) const {
    return {_mm512_sll_epi32(v, _mm_cvtsi32_si128(bits))};
  }
  template <int kBits>
  FB_INLINE Lanes Shifted() const {
    return {_mm512_srli_epi32(v, kBits)};
  }
  template <int kBits>
  FB_INLINE Lanes ShiftedLeft() const {
    return {_mm512_slli_epi32(v, kBits)};
  }
  FB_INLINE Lanes And(int mask) const { return {_mm512_and_si512(v, _mm512_set1_epi32(mask))}; }
  FB_INLINE Lanes Plus(int x) const { return {_mm512_add_epi32(v, _mm512_set1_epi32(x))}; }
  FB_INLINE Lanes Or(Lanes b) const { return {_mm512_or_si512(v, b.v)}; }
  FB_INLINE Lanes Xor(int bits) const { return {_mm512_xor_si512(v, _mm512_set1_epi32(bits))}; }
  // The bits that `mask` has, and b's others.
  FB_INLINE Lanes Select(int mask, Lanes b) const {
    return {_mm512_ternarylogic_epi32(v, b.v, _mm512_set1_epi32(mask), 0xE4)};
  }
  // The bits that `mask` has, of the lowest 23, less `offset`: as the fraction of 2^23.
  FB_INLINE Vector LowNumbers(int mask, float offset) const {
    constexpr float kBase = 8388608.0f;
    const __m512i base = _mm512_castps_si512(_mm512_set1_ps(kBase));
    const __m512i bits = _mm512_ternarylogic_epi32(v, _mm512_set1_epi32(mask), base, 0xEA);
    return {_mm512_sub_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(kBase + offset))};
  }
  // Byte kByte of each lane with its sign.
  template <int kByte>
  FB_INLINE Lanes SignedByte() const {
    return {_mm512_srai_epi32(_mm512_slli_epi32(v, 24 - 8 * kByte), 24)};
  }
  FB_INLINE Vector Numbers() const { return {_mm512_cvtepi32_ps(v)}; }
  FB_INLINE Vector Bits() const { return {_mm512_castsi512_ps(v)}; }
  // The lower halves as fp16.
  FB_INLINE Vector Halves() const { return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(v))}; }
  // Entry (lane modulo 16) of a table.
  FB_INLINE Vector EntriesOf(const float* table) const {
    return {_mm512_permutexvar_ps(v, _mm512_load_ps(table))};
  }
  // Entry (lane modulo 32).
  FB_INLINE Vector EntriesOf32(const float* table) const {
    return {_mm512_permutex2var_ps(_mm512_load_ps(table), v, _mm512_load_ps(table + 16))};
  }
};

// bf16 of fp8 without its sign; of 0x7F, which no stored tile has, 480.
struct E4M3Table {
  alignas(64) uint16_t bits[128];
  constexpr E4M3Table() : bits() {
    for (int code = 1; code < 128; ++code) {
      int exponent = code >> 3, fraction = code & 7;
      if (exponent == 0) {  // a denormal
        for (exponent = 1; fraction < 8; fraction *= 2) --exponent;
        fraction -= 8;
      }
      bits[code] = static_cast<uint16_t>((exponent + 127 - 7) << 7 | fraction << 4);
    }
  }
};

// fp8 of bytes 0 and 2 of each lane as bf16, in its halves. Other bytes do not matter.
FB_INLINE Lanes E4M3Halves(Lanes bytes) {
  static constexpr E4M3Table kTable;
  const __m512i low = _mm512_permutex2var_epi16(_mm512_load_si512(kTable.bits), bytes.v,
                                                _mm512_load_si512(kTable.bits + 32));
  const __m512i high = _mm512_permutex2var_epi16(_mm512_load_si512(kTable.bits + 64), bytes.v,
                                                 _mm512_load_si512(kTable.bits + 96));
  const __mmask32 is_high = _mm512_test_epi16_mask(bytes.v, _mm512_set1_epi16(0x40));
  const __m512i sign = _mm512_slli_epi16(bytes.v, 8), sign_bit = _mm512_set1_epi16(-0x8000);
  return {_mm512_ternarylogic_epi32(_mm512_mask_blend_epi16(is_high, low, high), sign, sign_bit,
                                    0xF8)};  // a | (b & c)
}

FB_INLINE Vector Magnitudes(Vector a) {
  return {_mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x7FFFFFFF)))};
}
FB_INLINE Vector MaxBits(Vector a, Vector b) {
  return {
      _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v)))};
}
// To nearest even, within int8.
FB_INLINE __m128i CodesOf(Vector a) { return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)); }

#else

struct Lanes {
  __m256i lo, hi;
  static FB_INLINE Lanes Load(const std::byte* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + 1)};
  }
  static FB_INLINE Lanes SignedBytes(const std::byte* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static FB_INLINE Lanes UnsignedBytes(const std::byte* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static FB_INLINE Lanes BitsOf(Vector a) {
    return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
  }
  FB_INLINE __m128i LowBytes() const {
    const __m256i low = _mm256_set1_epi32(0xFF);
    const __m256i words = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(_mm256_and_si256(lo, low), _mm256_and_si256(hi, low)), 0xD8);
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  }
  FB_INLINE Lanes ShiftedLeftBy(int bits) const {
    const __m128i count = _mm_cvtsi32_si128(bits);
    return {_mm256_sll_epi32(lo, count), _mm256_sll_epi32(hi, count)};
  }
  template <int kBits>
  FB_INLINE Lanes Shifted() const {
    return {_mm256_srli_epi32(lo, kBits), _mm256_srli_epi32(hi, kBits)};
  }
  template <int kBits>
  FB_INLINE Lanes ShiftedLeft() const {
    return {_mm256_slli_epi32(lo, kBits), _mm256_slli_epi32(hi, kBits)};
  }
  FB_INLINE Lanes And(int mask) const {
    const __m256i m = _mm256_set1_epi32(mask);
    return {_mm256_and_si256(lo, m), _mm256_and_si256(hi, m)};
  }
  FB_INLINE Lanes Plus(int x) const {
    const __m256i b = _mm256_set1_epi32(x);
    return {_mm256_add_epi32(lo, b), _mm256_add_epi32(hi, b)};
  }
  FB_INLINE Lanes Or(Lanes b) const {
    return {_mm256_or_si256(lo, b.lo), _mm256_or_si256(hi, b.hi)};
  }
  FB_INLINE Lanes Select(int mask, Lanes b) const {
    const __m256i m = _mm256_set1_epi32(mask);
    return {_mm256_or_si256(_mm256_and_si256(m, lo), _mm256_andnot_si256(m, b.lo)),
            _mm256_or_si256(_mm256_and_si256(m, hi), _mm256_andnot_si256(m, b.hi))};
  }
  FB_INLINE Lanes Xor(int bits) const {
    const __m256i b = _mm256_set1_epi32(bits);
    return {_mm256_xor_si256(lo, b), _mm256_xor_si256(hi, b)};
  }
  template <int kByte>
  FB_INLINE Lanes SignedByte() const {
    return {_mm256_srai_epi32(_mm256_slli_epi32(lo, 24 - 8 * kByte), 24),
            _mm256_srai_epi32(_mm256_slli_epi32(hi, 24 - 8 * kByte), 24)};
  }
  FB_INLINE Vector Numbers() const { return {_mm256_cvtepi32_ps(lo), _mm256_cvtepi32_ps(hi)}; }
  FB_INLINE Vector Bits() const { return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)}; }
  FB_INLINE Vector Halves() const {
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xD8);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(packed)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(packed, 1))};
  }
  FB_INLINE Vector EntriesOf(const float* table) const {
    return {EntriesOf(table, lo), EntriesOf(table, hi)};
  }

 private:
  static FB_INLINE __m256 EntriesOf(const float* table, __m256i index) {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(_mm256_load_ps(table), index),
                            _mm256_permutevar8x32_ps(_mm256_load_ps(table + 8), index),
                            _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
  }
};

FB_INLINE __m256 MagnitudesOf(__m256 a) {
  return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF)));
}
FB_INLINE Vector Magnitudes(Vector a) { return {MagnitudesOf(a.lo), MagnitudesOf(a.hi)}; }
FB_INLINE __m256 MaxBitsOf(__m256 a, __m256 b) {
  return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}
FB_INLINE Vector MaxBits(Vector a, Vector b) {
  return {MaxBitsOf(a.lo, b.lo), MaxBitsOf(a.hi, b.hi)};
}
FB_INLINE __m128i CodesOf(Vector a) {
  const __m256i words = _mm256_permute4x64_epi64(
      _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)), 0xD8);
  return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

#endif

// fp8 (kernels/tile_form.h) of the low bytes, which are alone in their lanes: the bits of a half
// that is 2^8 times too small. Conversions from halves keep denormals.
FB_INLINE Vector E4M3Values(Lanes bytes) {
  const Lanes sign = bytes.And(0x80).template ShiftedLeft<8>();
  return bytes.And(0x7F).template ShiftedLeft<7>().Or(sign).Halves() * Vector::Set(256.0f);
}

// Two vectors, rounded, one behind the other.
FB_INLINE void StoreTwo(float* to, Vector a, Vector b) {
  a.Store(to);
  b.Store(to + kLanes);
}
FB_INLINE void StoreTwo(BF16* to, Vector a, Vector b) {
#if defined(__AVX512BF16__)
  _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(b.v, a.v));
#else
  a.Store(to);
  b.Store(to + kLanes);
#endif
}

// Two vectors that T has, one behind the other.
FB_INLINE void StoreExact(float* to, Vector a, Vector b) { StoreTwo(to, a, b); }
FB_INLINE void StoreExact(BF16* to, Vector a, Vector b) {
#if defined(__AVX512BF16__)
  StoreTwo(to, a, b);
#elif defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtepi32_epi16(Lanes::BitsOf(a).Shifted<16>().v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + 1,
                      _mm512_cvtepi32_epi16(Lanes::BitsOf(b).Shifted<16>().v));
#else
  const Lanes first = Lanes::BitsOf(a).Shifted<16>(), second = Lanes::BitsOf(b).Shifted<16>();
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_permute4x64_epi64(_mm256_packus_epi32(first.lo, first.hi), 0xD8));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + 1,
                      _mm256_permute4x64_epi64(_mm256_packus_epi32(second.lo, second.hi), 0xD8));
#endif
}

FB_INLINE float FloatOf(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

constexpr uint32_t kInfinityBits = 0x7F800000, kNaNBits = 0x7FC00000, kOneBits = 0x3F800000;

// The bits of the scale with which values become codes of int8: of NaN and infinity NaN, of values
// that are all 0 one.
template <typename T>
FB_INLINE uint32_t Int8ScaleOf(const T* x, int64_t elements) {
  Vector most = Vector::Zero();
  int64_t k = 0;
  for (; k + kLanes <= elements; k += kLanes) most = MaxBits(most, Magnitudes(Vector::Load(x + k)));
  if (k < elements) most = MaxBits(most, Magnitudes(LoadPart(x + k, elements - k)));
  alignas(64) uint32_t lanes[kLanes];
  most.Store(reinterpret_cast<float*>(lanes));
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits = lanes[i] > bits ? lanes[i] : bits;
  if (bits >= kInfinityBits) return kNaNBits;
  const float scale = FloatOf(bits) / 127.0f;
  if (scale == 0) return kOneBits;
  __builtin_memcpy(&bits, &scale, sizeof(bits));
  return bits;
}

}  // namespace
}  // namespace forebay::kernels
