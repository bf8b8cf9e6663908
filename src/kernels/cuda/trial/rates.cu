// What a GPU's limits are measured with: kernels that only read, only multiply, or do nothing.
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/trial/params.h"

namespace forebay::kernels::cuda {
namespace {

struct alignas(16) Word {
  uint32_t part[4];
};

}  // namespace

FB_KERNEL(trial_read, ReadTrialParams, 512) {
  constexpr int kInFlight = 8;
  const Word* const data = reinterpret_cast<const Word*>(args.data);
  const int64_t stride = int64_t{gpu::GridX()} * gpu::Threads();
  uint32_t sum = 0;
  for (int64_t i = int64_t{gpu::BlockX()} * gpu::Threads() + gpu::Tid(); i < args.words;
       i += kInFlight * stride) {
    Word words[kInFlight] = {};
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (i + k * stride < args.words) words[k] = data[i + k * stride];
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      for (const uint32_t part : words[k].part) sum += part;
    }
  }
  for (int mask = 16; mask > 0; mask /= 2) sum += gpu::ShuffleXor(sum, mask);
  if (gpu::Tid() == 0) args.sum[gpu::BlockX()] = sum;
}

FB_KERNEL(trial_fma, FmaTrialParams, kFmaThreads) {
  const float start = static_cast<float>(gpu::Tid());
  float chain[kFmaChains];
  for (int c = 0; c < kFmaChains; ++c) chain[c] = start + static_cast<float>(c);
#pragma unroll 16
  for (int64_t round = 0; round < args.rounds; ++round) {
#pragma unroll
    for (int c = 0; c < kFmaChains; ++c) chain[c] = gpu::Fma(chain[c], args.factor, args.addend);
  }
  float sum = 0;
  for (const float part : chain) sum += part;
  args.sums[gpu::BlockX() * kFmaThreads + gpu::Tid()] = sum;
}

FB_KERNEL(trial_nothing, ReadTrialParams, gpu::kWarpLanes) {}

}  // namespace forebay::kernels::cuda
