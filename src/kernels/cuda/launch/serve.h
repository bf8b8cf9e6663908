// The operations of kernels/serve.h on a GPU (device::Operation::launch).
#pragma once

#include "device/cuda/launch_context.h"

namespace forebay::kernels::cuda {

// `args`: a GroupServedArgs without a law of routing.
void LaunchGroupServed(const void* args, const device::LaunchContext& context);
// A GatherServedArgs, a ReturnServedArgs without a count. Their counters are memory that kernels
// reach.
void LaunchGatherServed(const void* args, const device::LaunchContext& context);
void LaunchReturnServed(const void* args, const device::LaunchContext& context);

}  // namespace forebay::kernels::cuda
