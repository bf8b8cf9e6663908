// The exponential in double, the same bits on every machine: basic operations in a fixed order,
// none of them contracted, nothing from libm.
#pragma once

#include <bit>
#include <cstdint>

namespace forebay::base {

// e^x to 3e-10 relative, which is far inside the rounding of float logits; exactly 1 at 0. Below
// -708 (the border of the normal doubles), and for NaN, 0. `Double` is double or a vector of
// doubles, `Bits` the like of uint64_t. REQUIRES: x <= 0 or NaN.
template <typename Double = double, typename Bits = uint64_t>
[[gnu::always_inline]] inline Double Exp(Double x) {
  // 2^n e^r: adding 1.5 * 2^52 leaves n = round(x / ln 2) in the low bits; |r| <= ln(2) / 2, Taylor
  // to degree 8.
  const Double t = x * 0x1.71547652b82fep+0 + 0x1.8p+52;
  const Double n = t - 0x1.8p+52;
  const Double r = x - n * 0x1.62e42fefa39efp-1;
  Double p = r * (1.0 / 40320) + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const Double value =
      std::bit_cast<Double>(std::bit_cast<Bits>(p) + (std::bit_cast<Bits>(t) << 52));
  return x >= -708.0 ? value : Double{};
}

}  // namespace forebay::base
