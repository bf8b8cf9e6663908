// The KV cache's codes (kernels/kv_codes.h) over the type Vector: to values of the compute type,
// which attention multiplies, and from them.
#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/kv_layout.h"

namespace forebay::kernels {
namespace {

// What 16 codes stand for.
template <KvCodes kCodes>
FB_INLINE Vector KvValues(const std::byte* codes) {
  if constexpr (kCodes == KvCodes::kInt8) return Lanes::SignedBytes(codes).Numbers();
  // All bits but the sign are NaN; as a number they would be 480.
  const Vector values = E4M3Values(Lanes::UnsignedBytes(codes)), most = Vector::Set(448);
  return SelectLess(most, Magnitudes(values), Vector::Set(FloatOf(kNaNBits)), values);
}

template <KvCodes kCodes, typename T>
FB_INLINE void ExpandCodesOf(const std::byte* codes, int64_t n, T* out, int64_t ahead) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    __builtin_prefetch(codes + i + ahead, 0, 2);
    StoreExact(out + i, KvValues<kCodes>(codes + i), KvValues<kCodes>(codes + i + kLanes));
  }
  if (i == n) return;
  std::byte last[2 * kLanes] = {};
  T values[2 * kLanes];
  __builtin_memcpy(last, codes + i, static_cast<size_t>(n - i));
  StoreExact(values, KvValues<kCodes>(last), KvValues<kCodes>(last + kLanes));
  __builtin_memcpy(out + i, values, static_cast<size_t>(n - i) * sizeof(T));
}

// n codes to values; `ahead`: bytes from a code to what is brought into the second cache meanwhile.
template <typename T>
FB_INLINE void ExpandCodes(KvCodes form, const std::byte* codes, int64_t n, T* out, int64_t ahead) {
  if (form == KvCodes::kInt8) return ExpandCodesOf<KvCodes::kInt8>(codes, n, out, ahead);
  ExpandCodesOf<KvCodes::kFP8>(codes, n, out, ahead);
}

// V of a block from `column` on: 16 rows of columns; columns that are not stored are 0.
template <typename T>
FB_INLINE void ExpandValues(const KvLayout& layout, const std::byte* values, int column,
                            int columns, int64_t ahead, T* rows) {
  const int stored = Min(layout.value_dim - column, columns);
  const std::byte* from = values + 2 * column;
  for (int pair = 0; pair < kBlockTokens / 2; ++pair) {
    ExpandCodes(layout.codes, from, 2 * stored, rows, ahead);
    for (int j = 2 * stored; j < 2 * columns; ++j) rows[j] = T{};
    from += 2 * layout.value_dim;
    rows += 2 * columns;
  }
}

// E4M3 of 16 values.
FB_INLINE __m128i E4M3Codes(Vector x) {
  const Vector magnitude = Magnitudes(x), most = Vector::Set(448), least = Vector::Set(0x1p-6f);
  const Vector bounded = SelectLess(magnitude, most, magnitude, most);
  // A sum with 1.5 x 2^20 of its power of two keeps steps of 2^-3 of that.
  const Vector power = Max(Lanes::BitsOf(bounded).And(0x7F800000).Bits(), least),
               anchor = power * Vector::Set(0x1.8p20f);
  const Vector rounded = bounded + anchor - anchor;
  // What has no exponent counts from that of 2^-6, of which only the fraction is left.
  const Vector zero = Vector::Zero();
  const Vector shifted = rounded + SelectLess(rounded, least, least, zero);
  const Lanes fraction = Lanes::BitsOf(shifted).Shifted<20>();
  const Lanes code = Lanes::BitsOf(SelectLess(rounded, least, fraction.Plus(-(127 - 6) * 8).Bits(),
                                              fraction.Plus(-(127 - 7) * 8).Bits()))
                         .Or(Lanes::BitsOf(x).Shifted<24>().And(0x80));
  const Vector nan = Lanes::BitsOf(zero).Plus(0x7F).Bits();
  return Lanes::BitsOf(SelectLessEqual(x, x, code.Bits(), nan)).LowBytes();
}

FB_INLINE void StoreCodes(__m128i codes, int64_t n, uint8_t* out) {
  if (n >= kLanes) return _mm_storeu_si128(reinterpret_cast<__m128i*>(out), codes);
  uint8_t part[kLanes];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(part), codes);
  __builtin_memcpy(out, part, static_cast<size_t>(n));
}

// n values of one position and head to codes, which may begin where the values do; returns the
// scale.
template <typename T>
FB_INLINE float EncodeRow(KvCodes form, const T* x, int n, uint8_t* codes) {
  if (form == KvCodes::kFP8) {
    for (int j = 0; j < n; j += kLanes)
      StoreCodes(E4M3Codes(LoadPart(x + j, n - j)), n - j, codes + j);
    return 1;
  }
  const float scale = FloatOf(Int8ScaleOf(x, n));
  const Vector divisor = Vector::Set(scale);
  const bool finite = scale == scale;
  for (int j = 0; j < n; j += kLanes) {
    const Vector values = LoadPart(x + j, n - j);
    StoreCodes(finite ? CodesOf(values / divisor) : _mm_setzero_si128(), n - j, codes + j);
  }
  return scale;
}

}  // namespace
}  // namespace forebay::kernels
