// bfloat16 as bits, and the one rounding that every rounding point uses: to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace forebay::tensor {

// The upper half of an fp32.
struct BF16 {
  uint16_t bits = 0;
  friend bool operator==(BF16, BF16) = default;
};
static_assert(sizeof(BF16) == 2);

constexpr float ToFloat(BF16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
constexpr float ToFloat(float value) { return value; }

// Round to nearest even, denormal inputs to zero of the same sign, NaN to a quiet NaN: what
// vcvtneps2bf16 does.
constexpr BF16 ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  if (magnitude < 0x00800000u) return {static_cast<uint16_t>((bits >> 16) & 0x8000u)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

// ToBF16 of each; one that can be vector code.
void RoundToBF16(const float* values, int64_t count, BF16* out);

// The activation type T (BF16 or float) of a value: at every rounding point this is called.
template <typename T>
constexpr T RoundTo(float value) {
  if constexpr (sizeof(T) == 2) {
    return ToBF16(value);
  } else {
    return value;
  }
}

}  // namespace forebay::tensor
