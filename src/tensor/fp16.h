// IEEE 754 half precision as bits.
#pragma once

#include <bit>
#include <cstdint>

namespace forebay::tensor {

// To fp32, exactly, also where denormals are flushed; NaNs stay NaNs.
// Without branches, so that loops over it become vector code.
inline float HalfToFloat(uint16_t half) {
  const uint32_t magnitude = half & 0x7FFFu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  // Denormal: magnitude x 2^-24, and the integer is exact in fp32.
  const uint32_t denormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t is_denormal = -static_cast<uint32_t>(magnitude < 0x0400u);
  const uint32_t is_not_finite = -static_cast<uint32_t>(magnitude >= 0x7C00u);
  const uint32_t bits =
      (denormal & is_denormal) | (normal & ~is_denormal) | (0x7F800000u & is_not_finite);
  return std::bit_cast<float>(bits | static_cast<uint32_t>(half & 0x8000u) << 16);
}

}  // namespace forebay::tensor
