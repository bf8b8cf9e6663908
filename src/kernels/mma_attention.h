// Attention of classes `mma_*` (kernels/mma_order.h). The arguments are those of
// kernels/attention.h; what follows takes the place of its order of sums, for bf16. Per row and
// query head, with c = scale * log2(e) rounded to fp32:
//
//   KV is cut into parts at absolute multiples of 1,024 positions; each part that holds a position
//   that the row sees has its own online softmax, in steps at absolute multiples of 128:
//     score[t] = chain over key_dim, times the key's own scale where the cache has such
//     (kernels/kv_codes.h); unseen positions: -infinity
//     M' = max(M, ceil(greatest score * c) - 1), a whole number; factor = 2^(M - M'); M = M'
//     p[t] = MmaProbability(score[t]), unseen exactly 0
//     a lane t % 16 adds its p[t] of the step, ascending, from the first one on;
//     sum lane = fma(sum lane, factor, the step's lane)
//     values[j] *= factor where that is not 1, then the chain goes on over the step's positions:
//     products round(p[t]) v[t][j], unseen ones 0 whatever v is. Where the cache has scales, p[t]
//     meets the value's before it is rounded, unless it is 0 or a denormal
//   the part's sum is the tree over its 16 lanes. Parts merge in ascending order into a total that
//   begins as sum 0, values 0, M -infinity: top = max of both M; sums and values are
//   fma(part, 2^(M_part - top), total 2^(M_total - top)).
//   With a cap of scores, score[t] = Cap(scale * score[t], cap) and c = log2(e). A sink is one more
//   part, the last: M_part = ceil(sink * log2(e)) - 1, its sum MmaProbability of the sink, no
//   values. out[j] = round(fma(values[j], 1 / sum, 0)).
//
// 2^n is exact, and 0 for n < -126 and where neither side has seen anything. A NaN among scores
// does not count for their maximum. round(p[t]) keeps denormals; all else flushes them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/exp.h"

namespace forebay::kernels {

inline constexpr int kMmaStepTokens = 128;

// p = 2^y with y = score * c - M in [-127, 1], so that M needs to be whole and no more:
//
//   z = fma(score, c / 128, (127 - M) / 128), limited to [0, 1] (NaN: 0): y = 128 z - 127
//   t = z + kRound, which rounds z to n / 128 with n in its low bits; g = z - (t - kRound), exact
//   q = 1 + g (a1 + g (a2 + g a3)), minimax in relative error for 2^(128 g), |g| <= 1 / 256
//   p's bits are those of q plus n - 127 in the exponent's place
//
// z = 0, and with it -infinity, gives exactly 0: one limit serves range and masks. Degree 3 is the
// least whose error, 1.02e-4 relative over all z in [1 / 128, 1], is under 1/8 of bf16's rounding
// (2^-12; degree 2 has 1.96e-3). Rounding z adds 2^-18.5. Below 2^-126 p is a denormal of no
// meaning, the same everywhere.
struct MmaProbabilityConstants {
  static constexpr float kRound = 0x1.8p+16f - 127.0f / 128;
  static constexpr float kA1 = 0.69328293f * 0x1p7f, kA2 = 0.24221096f * 0x1p14f,
                         kA3 = 0.05500893f * 0x1p21f;
};

constexpr float MmaBias(float whole) { return (127.0f - whole) * 0x1p-7f; }

// From z on.
inline float MmaPowerOf(float z) {
  using C = MmaProbabilityConstants;
  const float t = z + C::kRound;
  const float g = z - (t - C::kRound);
  const float q = std::fma(std::fma(std::fma(g, C::kA3, C::kA2), g, C::kA1), g, 1.0f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(q) + (std::bit_cast<uint32_t>(t) << 23));
}

// c128: c / 128; bias: MmaBias(M).
inline float MmaProbability(float score, float c128, float bias) {
  const float z = std::fma(score, c128, bias);
  return MmaPowerOf(z > 0 ? (z < 1 ? z : 1.0f) : 0.0f);
}

// M of a greatest score.
inline float MmaWhole(float score, float c) { return std::ceil(score * c) - 1.0f; }

// 2^n of a whole n <= 0; 0 below 2^-126 and of NaN.
inline float MmaFactor(float n) {
  return n >= -126.0f ? std::bit_cast<float>(static_cast<uint32_t>(static_cast<int>(n) + 127) << 23)
                      : 0.0f;
}

constexpr float MmaScale(float scale) { return scale * ExpConstants::kLog2E; }

}  // namespace forebay::kernels
