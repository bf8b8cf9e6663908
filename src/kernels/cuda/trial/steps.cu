// One step of the tensor cores on given values: whether their order is the class's.
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/trial/params.h"

namespace forebay::kernels::cuda {

FB_KERNEL(trial_mma, StepTrialParams, gpu::kWarpLanes) {
  constexpr int kDepth = 16;
  const uint16_t* const a = args.a + gpu::BlockX() * kMmaTrialRows * kDepth;
  const uint16_t* const b = args.b + gpu::BlockX() * kMmaTrialColumns * kDepth;
  const int row = gpu::Lane() / 4, pair = gpu::Lane() % 4 * 2;
  const auto pair_at = [](const uint16_t* at) { return at[0] | uint32_t{at[1]} << 16; };
  uint32_t x[4], w[2];
  for (int i = 0; i < 4; ++i) x[i] = pair_at(a + (row + i % 2 * 8) * kDepth + i / 2 * 8 + pair);
  for (int i = 0; i < 2; ++i) w[i] = pair_at(b + row * kDepth + i * 8 + pair);
  float sums[4];
  int64_t at[4];
  for (int i = 0; i < 4; ++i) {
    at[i] = (int64_t{gpu::BlockX()} * kMmaTrialRows + row + i / 2 * 8) * kMmaTrialColumns + pair +
            i % 2;
    sums[i] = args.c[at[i]];
  }
  gpu::Mma(sums, x, w[0], w[1]);
  for (int i = 0; i < 4; ++i) args.d[at[i]] = sums[i];
}

}  // namespace forebay::kernels::cuda
