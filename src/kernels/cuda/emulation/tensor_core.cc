#include "kernels/cuda/emulation/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace forebay::gpu::emulation {
namespace {

constexpr int kKept = 25;  // bits below the greatest exponent
constexpr int kLeastExponent = -126;

// value = significand * 2^(exponent - fraction_bits)
struct Addend {
  int64_t significand;  // not negative
  bool negative;
  int exponent;
};

struct Parts {
  int64_t significand;
  int exponent;
};
Parts PartsOf(uint32_t magnitude, int fraction_bits) {
  const auto exponent = static_cast<int>(magnitude >> fraction_bits);
  const int64_t fraction = magnitude & ((1u << fraction_bits) - 1);
  return {exponent != 0 ? fraction | int64_t{1} << fraction_bits : fraction,
          std::max(exponent, 1) - 127};
}

int64_t Aligned(const Addend& addend, int fraction_bits, int greatest) {
  if (addend.significand == 0) return 0;  // its exponent may be any
  const int shift = kKept - fraction_bits + addend.exponent - greatest;
  const int64_t cut = shift >= 0    ? addend.significand << shift
                      : shift > -63 ? addend.significand >> -shift
                                    : 0;
  return addend.negative ? -cut : cut;
}

// sum * 2^(greatest - kKept), cut to fp32.
float Cut(int64_t sum, int greatest) {
  if (sum == 0) return 0.0f;
  const bool negative = sum < 0;
  const auto magnitude = static_cast<uint64_t>(negative ? -sum : sum);
  const int top = 63 - std::countl_zero(magnitude);
  const int exponent = greatest - kKept + top;
  int drop = top - 23;
  if (exponent < kLeastExponent) drop += kLeastExponent - exponent;
  const uint64_t kept = drop >= 64 ? 0 : drop > 0 ? magnitude >> drop : magnitude << -drop;
  uint32_t bits;
  if (exponent < kLeastExponent) {
    bits = static_cast<uint32_t>(kept);
  } else if (exponent > 127) {
    bits = 0x7F800000u;
  } else {
    bits = static_cast<uint32_t>(exponent + 127) << 23 | (static_cast<uint32_t>(kept) & 0x7FFFFF);
  }
  return std::bit_cast<float>(bits | (negative ? 0x80000000u : 0));
}

// What infinities and NaN among the addends make of the sum; 0: there are none.
float Special(const uint16_t a[16], const uint16_t b[16], float c) {
  float sum = std::bit_cast<uint32_t>(c) << 1 >= 0xFF000000u ? c : 0.0f;
  const auto is_special = [](uint16_t bits) { return (bits & 0x7F80u) == 0x7F80u; };
  const auto value = [](uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); };
  for (int i = 0; i < 16; ++i) {
    if (is_special(a[i]) || is_special(b[i])) sum += value(a[i]) * value(b[i]);
  }
  return sum;
}

// Eight columns at once, and halves of them.
using Ints = int32_t __attribute__((vector_size(32)));
using Longs = int64_t __attribute__((vector_size(32)));
using Shorts = uint16_t __attribute__((vector_size(16)));
using HalfInts = int32_t __attribute__((vector_size(16)));
using HalfFloats = float __attribute__((vector_size(16)));
using HalfDoubles = double __attribute__((vector_size(32)));
constexpr int kColumns = 8, kHalf = 4;

constexpr int kExponentOfZero = -4096;  // far below all others
constexpr int kMostShift = 31;          // leaves nothing of an addend

struct Decoded {
  Ints significand;  // with its sign
  Ints exponent;
  Ints special;  // -1: infinity or NaN
  Ints nan;
};
// Of bits without their sign; `negative`: -1 or 0.
inline Decoded Decode(Ints magnitude, Ints negative, int fraction_bits) {
  const Ints field = magnitude >> fraction_bits;
  const Ints significand =
      (magnitude & ((1 << fraction_bits) - 1)) | ((field != 0) & (1 << fraction_bits));
  const Ints exponent = field - (field == 0) - 127;
  return {(significand ^ negative) - negative,
          significand == 0 ? Ints{} + kExponentOfZero : exponent, field == 255,
          magnitude > 255 << fraction_bits};
}
inline Decoded DecodeBF16(const uint16_t* bits) {
  Shorts narrow;
  std::memcpy(&narrow, bits, sizeof narrow);
  const Ints wide = __builtin_convertvector(narrow, Ints);
  return Decode(wide & 0x7FFF, -(wide >> 15), 7);
}
inline bool Any(Ints of) {
  const auto longs = reinterpret_cast<Longs>(of);
  return (longs[0] | longs[1] | longs[2] | longs[3]) != 0;
}

inline Ints Greater(Ints a, Ints b) { return a > b ? a : b; }

// As `Aligned` above, for addends that are `below` the greatest exponent.
inline Ints AlignedAll(Ints significand, int fraction_bits, Ints below) {
  const Ints negative = significand >> 31;
  const Ints magnitude = ((significand ^ negative) - negative) << (kKept - fraction_bits);
  const Ints cut = magnitude >> (below < kMostShift ? below : Ints{} + kMostShift);
  return (cut ^ negative) - negative;
}

// As `Cut` above, of the sum of both; `differs`: -1 where the result is a denormal and is not that.
inline HalfFloats CutAll(HalfInts products, HalfInts before, HalfInts greatest, HalfInts* differs) {
  // Exact: integers of at most 33 bits, and a power of two.
  const HalfDoubles sum =
      __builtin_convertvector(products, HalfDoubles) + __builtin_convertvector(before, HalfDoubles);
  const Longs scale = (__builtin_convertvector(greatest, Longs) + (1023 - kKept)) << 52;
  const auto bits = reinterpret_cast<Longs>(sum * reinterpret_cast<HalfDoubles>(scale));
  const Longs magnitude = bits & 0x7FFFFFFFFFFFFFFF;
  const Longs denormal = (magnitude != 0) & (magnitude < int64_t{1023 + kLeastExponent} << 52);
  *differs = __builtin_convertvector(denormal, HalfInts);
  constexpr int64_t kDropped = (int64_t{1} << (52 - 23)) - 1;
  return __builtin_convertvector(reinterpret_cast<HalfDoubles>(bits & ~kDropped), HalfFloats);
}

}  // namespace

float TensorCoreStep(const uint16_t a[16], const uint16_t b[16], float c) {
  constexpr int kSteps = 16, kProductBits = 14, kSumBits = 23;
  if (const float special = Special(a, b, c); special != 0)
    return special == special ? special : std::numeric_limits<float>::quiet_NaN();
  Addend products[kSteps];
  int greatest = kLeastExponent;
  for (int i = 0; i < kSteps; ++i) {
    const Parts x = PartsOf(a[i] & 0x7FFFu, 7), w = PartsOf(b[i] & 0x7FFFu, 7);
    products[i] = {x.significand * w.significand, ((a[i] ^ b[i]) & 0x8000) != 0,
                   x.exponent + w.exponent};
    if (products[i].significand != 0) greatest = std::max(greatest, products[i].exponent);
  }
  const auto c_bits = std::bit_cast<uint32_t>(c);
  const Parts c_parts = PartsOf(c_bits & 0x7FFFFFFFu, 23);
  const Addend before{c_parts.significand, c_bits >> 31 != 0, c_parts.exponent};
  if (before.significand != 0) greatest = std::max(greatest, before.exponent);
  int64_t sum = Aligned(before, kSumBits, greatest);
  for (const Addend& product : products) sum += Aligned(product, kProductBits, greatest);
  return Cut(sum, greatest);
}

void TensorCoreTile(const uint16_t (&a)[16][16], const uint16_t (&b)[16][8], float (&c)[16][8]) {
  constexpr int kSteps = 16, kRows = 16, kProductBits = 14, kSumBits = 23;
  Decoded columns[kSteps];
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Ints special_columns{}, nan_columns{};
  for (int k = 0; k < kSteps; ++k) {
    columns[k] = DecodeBF16(b[k]);
    special_columns |= columns[k].special;
    nan_columns |= columns[k].nan;
  }
  for (int row = 0; row < kRows; ++row) {
    int32_t significands[kSteps], exponents[kSteps];
    Ints special{}, nan{}, any{};
    for (int k = 0; k < kSteps; k += kColumns) {
      const Decoded part = DecodeBF16(a[row] + k);
      std::memcpy(significands + k, &part.significand, sizeof part.significand);
      std::memcpy(exponents + k, &part.exponent, sizeof part.exponent);
      special |= part.special;
      nan |= part.nan;
      any |= part.significand;
    }
    if (Any(nan)) {
      std::ranges::fill(c[row], kNan);
      continue;
    }
    special = Any(special) ? Ints{} - 1 : special_columns;
    Ints bits;
    std::memcpy(&bits, c[row], sizeof bits);
    const Decoded before = Decode(bits & 0x7FFFFFFF, bits >> 31, kSumBits);
    special |= before.special;
    nan = nan_columns | before.nan;
    if (!Any(any) && !Any(special & ~nan)) {
      // Nothing is added: but for a zero's sign, what was there stays.
      bits = before.significand == 0 ? Ints{} : bits;
      bits = nan ? Ints{} + std::bit_cast<int32_t>(kNan) : bits;
      std::memcpy(c[row], &bits, sizeof bits);
      continue;
    }
    Ints greatest = Greater(Ints{} + kLeastExponent, before.exponent);
    for (int k = 0; k < kSteps; ++k)
      greatest = Greater(greatest, columns[k].exponent + exponents[k]);
    Ints sum{};  // at most 16 * 255 * 255 * 2^11 < 2^31
    for (int k = 0; k < kSteps; ++k) {
      sum += AlignedAll(columns[k].significand * significands[k], kProductBits,
                        greatest - (columns[k].exponent + exponents[k]));
    }
    const Ints aligned = AlignedAll(before.significand, kSumBits, greatest - before.exponent);
    // What this does not cover, the step of one output does.
    int32_t one_by_one[kColumns];
    float result[kColumns];
    for (int first = 0; first < kColumns; first += kHalf) {
      const auto half = [first](const Ints& all) {
        HalfInts part;
        std::memcpy(&part, reinterpret_cast<const int32_t*>(&all) + first, sizeof part);
        return part;
      };
      HalfInts differs;
      HalfFloats cut = CutAll(half(sum), half(aligned), half(greatest), &differs);
      differs = (differs | half(special)) & ~half(nan);
      cut = half(nan) ? HalfFloats{} + kNan : cut;
      std::memcpy(result + first, &cut, sizeof cut);
      std::memcpy(one_by_one + first, &differs, sizeof differs);
    }
    for (int column = 0; column < kColumns; ++column) {
      if (one_by_one[column] == 0) continue;
      uint16_t down[kSteps];
      for (int k = 0; k < kSteps; ++k) down[k] = b[k][column];
      result[column] = TensorCoreStep(a[row], down, c[row][column]);
    }
    std::memcpy(c[row], result, sizeof result);
  }
}

}  // namespace forebay::gpu::emulation
