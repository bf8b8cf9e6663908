// What kernels of class mma_k16f25 share: rounding, and the exponential of kernels/mma_attention.h
// to the bit.
#pragma once

#include "kernels/cuda/gpu.h"
#include "kernels/mma_attention.h"

namespace forebay::kernels::cuda {

// tensor::ToBF16 of two neighbours in memory. (That one's cast to integers would make the compiler
// keep sums as integers, and move them while wgmma has them.)
FB_DEVICE uint32_t RoundedPair(float low, float high) {
  return gpu::PairOf(gpu::Flush(low), gpu::Flush(high));
}

#define FB_NOTHING (gpu::FromBits(0xFF800000u))  // -infinity

FB_DEVICE float ProbabilityOf(float score, float c128, float bias) {
  using C = MmaProbabilityConstants;
  const float z = gpu::FmaSaturated(score, c128, bias);
  const float t = z + C::kRound;
  const float g = z - (t - C::kRound);
  const float q = gpu::Fma(gpu::Fma(gpu::Fma(g, C::kA3, C::kA2), g, C::kA1), g, 1.0f);
  return gpu::FromBits(gpu::Bits(q) + (gpu::Bits(t) << 23));
}
FB_DEVICE float WholeOf(float score, float c) { return gpu::Ceil(score * c) - 1.0f; }
FB_DEVICE float FactorOf(float n) {
  return n >= -126.0f ? gpu::FromBits(static_cast<uint32_t>(static_cast<int>(n) + 127) << 23)
                      : 0.0f;
}

// The sums of a row's 16 lanes t % 16 are spread over the four threads that share the row's scores:
// thread q = lane % 4 has lanes 2 q, 2 q + 1, 8 + 2 q, 9 + 2 q. The tree over them, for all four.
FB_DEVICE float LanesTree(const float (&lanes)[4]) {
  float even = lanes[0] + lanes[2], odd = lanes[1] + lanes[3];
  for (int apart = 2; apart > 0; apart /= 2) {
    even = even + gpu::ShuffleXor(even, apart);
    odd = odd + gpu::ShuffleXor(odd, apart);
  }
  return even + odd;
}

}  // namespace forebay::kernels::cuda
