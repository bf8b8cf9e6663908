// As trial/steps.cu, for wgmma.
#include "kernels/cuda/trial/params.h"
#include "kernels/cuda/wgmma.h"

namespace forebay::kernels::cuda {

FB_KERNEL(trial_wgmma, StepTrialParams, 128) {
  constexpr int kDepth = 16, kOperandBytes = 8192;
  FB_SHARED(unsigned char, shared);  // A, then B: rows of 128 bytes, 32 used
  const uint16_t* const a = args.a + gpu::BlockX() * kWgmmaTrialRows * kDepth;
  const uint16_t* const b = args.b + gpu::BlockX() * kWgmmaTrialColumns * kDepth;
  for (int i = gpu::Tid(); i < kWgmmaTrialRows * kDepth; i += gpu::Threads()) {
    const int row = i / kDepth, k = i % kDepth;
    const int at = row / 8 * 1024 + row % 8 * 128 + ((k * 2) ^ (row % 8 * 16));
    *reinterpret_cast<uint16_t*>(shared + at) = a[i];
    *reinterpret_cast<uint16_t*>(shared + kOperandBytes + at) = b[i];
  }
  gpu::ProxyFence();
  gpu::Sync();
  float sums[kWgmmaTrialColumns / 2];
  const auto place = [](int i) {
    const int row = gpu::Warp() * 16 + gpu::Lane() / 4 + i / 2 % 2 * 8;
    return (int64_t{gpu::BlockX()} * kWgmmaTrialRows + row) * kWgmmaTrialColumns + i / 4 * 8 +
           gpu::Lane() % 4 * 2 + i % 2;
  };
#pragma unroll
  for (int i = 0; i < kWgmmaTrialColumns / 2; ++i) sums[i] = args.c[place(i)];
  gpu::WgmmaFence();
  gpu::Wgmma<kWgmmaTrialColumns>::Shared<false>(
      sums, gpu::OperandAlongK(gpu::Smem(shared)),
      gpu::OperandAlongK(gpu::Smem(shared + kOperandBytes)), true);
  gpu::WgmmaCommit();
  gpu::WgmmaWait<0>();
#pragma unroll
  for (int i = 0; i < kWgmmaTrialColumns / 2; ++i) args.d[place(i)] = sums[i];
}

}  // namespace forebay::kernels::cuda
