#include "kernels/cuda/emulation/tensor_core.h"

#include <algorithm>
#include <bit>
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

}  // namespace forebay::gpu::emulation
