// A step of 128 positions of attention by one warp, in the order of kernels/mma_attention.h: query
// heads of a KV head are rows 0 to 7 of A. A thread has head lane / 4 and of each tile of 8
// positions two, lane % 4 * 2 and the next.
#pragma once

#include "kernels/cuda/mma/arithmetic.h"

namespace forebay::kernels::cuda {

inline constexpr int kStepBlocks = 4, kStepTiles = 16;

// Positions [first, end) of a part, from the part's first one on.
struct SeenPart {
  int first, end;

  FB_DEVICE bool Has(int t) const { return t >= first && t < end; }
  FB_DEVICE bool HasAll(int begin, int behind) const { return begin >= first && behind <= end; }
};

// Scores outside of what is seen become -infinity; returns the greatest one of the thread's row.
// `at`: the step's first position.
FB_DEVICE float MaskScores(const SeenPart& seen, int at, float (&c)[kStepTiles][2]) {
  const bool all = seen.HasAll(at, at + kStepTiles * 8);
  float best = FB_NOTHING;
#pragma unroll
  for (int t = 0; t < kStepTiles; ++t) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (!all && !seen.Has(at + t * 8 + gpu::Lane() % 4 * 2 + e)) c[t][e] = FB_NOTHING;
      best = gpu::Max(best, c[t][e]);
    }
  }
  best = gpu::Max(best, gpu::ShuffleXor(best, 1));
  return gpu::Max(best, gpu::ShuffleXor(best, 2));
}

// p of a step's scores: keep(t, p[t][0], p[t][1]). `lanes`: the sums of the step.
template <typename Keep>
FB_DEVICE void ProbabilitiesOf(const float (&c)[kStepTiles][2], float c128, float whole,
                               float (&lanes)[4], Keep keep) {
  const float bias = MmaBias(whole);
#pragma unroll
  for (int t = 0; t < kStepTiles; ++t) {
    const float p0 = ProbabilityOf(c[t][0], c128, bias), p1 = ProbabilityOf(c[t][1], c128, bias);
    const int i = t % 2 * 2;
    lanes[i] = t < 2 ? p0 : lanes[i] + p0;
    lanes[i + 1] = t < 2 ? p1 : lanes[i + 1] + p1;
    keep(t, p0, p1);
  }
}
// The same, as A of the values: words[t].
FB_DEVICE void Probabilities(const float (&c)[kStepTiles][2], float c128, float whole,
                             uint32_t (&words)[kStepTiles], float (&lanes)[4]) {
  ProbabilitiesOf(c, c128, whole, lanes,
                  [&](int t, float p0, float p1) { words[t] = gpu::PairOf(p0, p1); });
}
// A probability that meets its value's scale.
FB_DEVICE float Scaled(float p, float scale) { return p <= 0 ? p : p * scale; }

// What is kept of an element pair of V at positions t, t + 1.
FB_DEVICE uint32_t Kept(const SeenPart& seen, int t) {
  return (seen.Has(t) ? 0x0000FFFFu : 0) | (seen.Has(t + 1) ? 0xFFFF0000u : 0);
}

template <int kTiles>
FB_DEVICE void Rescale(float factor, float (&values)[kTiles][2]) {
  if (factor == 1.0f) return;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    values[j][0] = values[j][0] * factor;
    values[j][1] = values[j][1] * factor;
  }
}

}  // namespace forebay::kernels::cuda
