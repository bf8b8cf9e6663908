// The kernel set of class `pair` on a GPU: the CPU's bytes from plain kernels on its CUDA cores.
#pragma once

#include "kernels/kernel_set.h"

namespace forebay::kernels::cuda {

// Its functions are called with a device::LaunchContext, once an operation; they read no memory but
// their arguments.
const KernelSet& PairKernels();

}  // namespace forebay::kernels::cuda
