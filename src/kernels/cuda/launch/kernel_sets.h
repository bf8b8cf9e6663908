// The kernel sets of GPUs. Their functions are called with a device::LaunchContext, once an
// operation; they read no memory but their arguments.
#pragma once

#include "kernels/kernel_set.h"

namespace forebay::kernels::cuda {

// Class `pair`: the CPU's bytes from plain kernels on CUDA cores.
const KernelSet& PairKernels();
// Class mma_k16f25: products of bf16 on tensor cores, all else as `pair`. Weights, and K and V of
// heads of a multiple of 64 elements, lie in PackedForm::kCuda.
const KernelSet& MmaKernels();

}  // namespace forebay::kernels::cuda
