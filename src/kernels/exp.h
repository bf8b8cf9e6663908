// The one exponential of every kernel, scalar form. The vector form (cpu/simd.h) takes the same
// steps and gives the same bits; both round once a step, with fused multiply-add where std::fma
// stands.
//
//   exp(x) = 2^n exp(r), n = x / ln 2 to the nearest integer (ties to even), r = x - n ln 2 in two
//   parts,
//   exp(r) = 1 + r + r^2 q(r) with q of degree 4, minimax in relative error over |r| <= ln(2) / 2
//   (2^-28.3)
//
// At most 1 ulp off (exp_test measures it). Results below 2^-126 are 0, as flushed denormals; above
// the greatest float infinity; NaN stays NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace forebay::kernels {

struct ExpConstants {
  static constexpr float kLowest = -87.33654f;  // exp of anything less is 0: just above ln 2^-126
  // exp of anything greater is infinite: below ln of the greatest float
  static constexpr float kHighest = 0x1.62e42ep+6f;
  static constexpr float kLog2E = 0x1.715476p+0f;
  static constexpr float kRound = 0x1.8p+23f;  // t = x log2(e) + kRound holds n in its low bits
  static constexpr float kLn2High = 0x1.62e430p-1f;
  static constexpr float kLn2Low = -0x1.05c610p-29f;
  static constexpr float kQ[5] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.1239d8p-7f,
                                  0x1.6a2448p-10f};
};

inline float Exp(float x) {
  using C = ExpConstants;
  if (x < C::kLowest) return 0;
  if (!(x <= C::kHighest)) return x + std::bit_cast<float>(0x7F800000u);
  const float t = std::fma(x, C::kLog2E, C::kRound);
  const float n = t - C::kRound;
  const float r = std::fma(n, -C::kLn2Low, std::fma(n, -C::kLn2High, x));
  float q = C::kQ[4];
  for (int i = 3; i >= 0; --i) q = std::fma(q, r, C::kQ[i]);
  const float p = std::fma(std::fma(q, r, 1.0f), r, 1.0f);
  // kRound's own low bits are zero, so the shift leaves n in the exponent's place.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(t) << 23));
}

// ln(1 + e^x) = max(x, 0) + ln(1 + u), u = e^-|x|; ln(1 + u) = 2 (s + s^3 / 3 + ... + s^15 / 15), s
// = u / (2 + u), whose next term is below 2^-29 of the sum.
struct SoftplusConstants {
  static constexpr float kOdd[8] = {1.0f,     1.0f / 3,  1.0f / 5,  1.0f / 7,
                                    1.0f / 9, 1.0f / 11, 1.0f / 13, 1.0f / 15};
};
inline float Softplus(float x) {
  using C = SoftplusConstants;
  const float u = Exp(x < 0 ? x : -x), s = u / (2.0f + u), square = s * s;
  float sum = C::kOdd[7];
  for (int i = 6; i >= 0; --i) sum = std::fma(sum, square, C::kOdd[i]);
  return std::fma(s + s, sum, 0 < x ? x : 0.0f);
}

inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

inline float Silu(float x) { return x / (1.0f + Exp(-x)); }

// 1 - 2 / (exp(2 x) + 1); absolute error about 1e-7.
inline float Tanh(float x) { return 1.0f - 2.0f / (Exp(x + x) + 1.0f); }

// c tanh(x / c): scores and logits that stay within +-c.
inline float Cap(float x, float c) { return c * Tanh(x / c); }

// GELU by tanh (arXiv 1606.08415): 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x +
// 0.044715 x^3).
struct GeluConstants {
  static constexpr float kTwoRoot = 1.5957691216f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.044715f;
};
inline float Gelu(float x) {
  using C = GeluConstants;
  const float u = x * std::fma(x * x, C::kCubic, 1.0f) * C::kTwoRoot;
  return x / (1.0f + Exp(-u));
}

// GELU by the error function: x Phi(x) = max(x, 0) - |x| / 2 erfc(|x| / sqrt(2)), with erfc(z) = t
// p(t) exp(-z^2), t = 1 / (1 + c z), p of degree 4 (Abramowitz and Stegun, 7.1.26; erf within
// 1.5e-7).
struct ErfGeluConstants {
  static constexpr float kHalfRoot = 0.70710678f, kC = 0.3275911f;
  static constexpr float kP[5] = {0.254829592f, -0.284496736f, 1.421413741f, -1.453152027f,
                                  1.061405429f};
};
inline float ErfGelu(float x) {
  using C = ErfGeluConstants;
  const float size = x < 0 ? -x : x, z = size * C::kHalfRoot;
  const float t = 1.0f / std::fma(z, C::kC, 1.0f);
  float p = C::kP[4];
  for (int i = 3; i >= 0; --i) p = std::fma(p, t, C::kP[i]);
  const float tail = p * t * Exp(-(z * z)) * (size * 0.5f);
  return (x < 0 ? 0.0f : x) - tail;
}

// NaN stays NaN.
inline float ReluSquared(float x) {
  const float above = x < 0 ? 0.0f : x;
  return above * above;
}

// gpt-oss's gate: min(x, 7) sigmoid(1.702 min(x, 7)); the linear part meets it within +-7, plus 1.
struct ClampedSiluConstants {
  static constexpr float kLimit = 7.0f, kSlope = 1.702f;
};
inline float ClampedSilu(float x) {
  using C = ClampedSiluConstants;
  const float gate = C::kLimit < x ? C::kLimit : x;
  return gate / (1.0f + Exp(-(gate * C::kSlope)));
}
inline float ClampedUp(float x) {
  using C = ClampedSiluConstants;
  const float below = C::kLimit < x ? C::kLimit : x;
  return (below < -C::kLimit ? -C::kLimit : below) + 1.0f;
}

}  // namespace forebay::kernels
