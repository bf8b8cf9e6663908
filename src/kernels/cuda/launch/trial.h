// Whether a GPU's tensor cores sum as class mma_k16f25 says.
#pragma once

#include "device/device.h"

namespace forebay::kernels::cuda {

// Some thousand single steps on adversarial values, by mma.sync and, where the GPU has it, by
// wgmma, against ref/; a few milliseconds. `device`: a cuda device whose compute stream is idle.
// Errors: kNumericsUnavailable, with the first value that differs; faults of the device.
base::Status TryTensorCores(device::Device& device);

}  // namespace forebay::kernels::cuda
