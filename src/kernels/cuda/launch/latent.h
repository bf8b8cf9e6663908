// Absorbed latent attention of class mma_k16f25 on the kernel of its own.
#pragma once

#include "device/cuda/launch_context.h"
#include "kernels/attention.h"
#include "kernels/cuda/pair/params.h"

namespace forebay::kernels::cuda {

// Launches a step's attention where keys are latents of 512 elements and 64 turned ones in chunks,
// on compute capability 9.0 with scratch for a block at least. False: it has launched nothing.
bool LaunchLatentAttention(const AttentionArgs& args, const AttentionParams& plain,
                           const device::LaunchContext& context);

}  // namespace forebay::kernels::cuda
