// The exponential and the logarithm in double, the same bits on every machine, GPUs among them:
// basic operations in a fixed order, none of them contracted, nothing from libm.
#pragma once

#include <bit>
#include <cstdint>

namespace forebay::base {

// e^x to 3e-10 relative, which is far inside the rounding of float logits; exactly 1 at 0. Below
// -708 (the border of the normal doubles), and for NaN, 0. `Double` is double or a vector of
// doubles, `Bits` the like of uint64_t. REQUIRES: x <= 0 or NaN.
template <typename Double = double, typename Bits = uint64_t>
[[gnu::always_inline]] constexpr Double Exp(Double x) {
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
  // std::bit_cast is a function: where it is not inlined, functions of unlike instruction sets
  // would pass each other vectors in unlike places.
  const Double value =
      __builtin_bit_cast(Double, __builtin_bit_cast(Bits, p) + (__builtin_bit_cast(Bits, t) << 52));
  return x >= -708.0 ? value : Double{};
}

// The natural logarithm to 1e-15. REQUIRES: x is a positive normal number.
constexpr double Log(double x) {
  // x = 2^e m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <
  // 0.172.
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  constexpr uint64_t kSqrtHalf = std::bit_cast<uint64_t>(0x1.6a09e667f3bcdp-1);
  const auto e = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(e) << 52));
  const double s = (m - 1) / (m + 1);
  double series = 0;
  for (int power = 19; power >= 3; power -= 2) series = (series + 1.0 / power) * (s * s);
  return static_cast<double>(e) * 0x1.62e42fefa39efp-1 + 2 * (s + s * series);
}

}  // namespace forebay::base
