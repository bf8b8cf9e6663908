// Values on which orders of sums differ: spread exponents, cancellation, subnormals, zeros of both
// signs; finite.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/rng.h"

namespace forebay::kernels::cuda {

class Adversary {
 public:
  explicit Adversary(uint64_t seed) : rng_(seed) {}
  // Bits of bf16. `spread`: exponents lie so far apart.
  uint16_t BF16(int spread) {
    const uint64_t bits = rng_.Next();
    if (bits % 23 == 0) return static_cast<uint16_t>(bits >> 40 & 0x8000u);
    if (bits % 29 == 0) return static_cast<uint16_t>(bits >> 40 & 0x807Fu);
    const int exponent =
        127 + static_cast<int>(rng_.Below(static_cast<uint64_t>(2 * spread + 1))) - spread;
    return static_cast<uint16_t>((bits >> 20 & 0x807Fu) | static_cast<uint64_t>(exponent) << 7);
  }
  float Sum(int spread) {
    const uint64_t bits = rng_.Next();
    if (bits % 17 == 0)
      return std::bit_cast<float>(static_cast<uint32_t>(bits >> 20) & 0x80000000u);
    const int exponent =
        127 + static_cast<int>(rng_.Below(static_cast<uint64_t>(4 * spread + 1))) - 2 * spread;
    return std::bit_cast<float>((static_cast<uint32_t>(bits >> 20) & 0x807FFFFFu) |
                                static_cast<uint32_t>(std::clamp(exponent, 0, 254)) << 23);
  }

 private:
  base::Rng rng_;
};

}  // namespace forebay::kernels::cuda
