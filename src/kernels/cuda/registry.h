// The kernels of this program and the images that hold them. cmake/ForebayCuda.cmake makes the
// table from the declarations in CMakeLists.txt.
#pragma once

#include <span>
#include <string_view>

#include "device/cuda/launch_context.h"

namespace forebay::kernels::cuda {

std::span<const device::CudaKernel> Kernels();

// REQUIRES: it was declared.
const device::CudaKernel& KernelNamed(std::string_view name);

// Whether the images were compiled: false in a build without nvcc.
bool HasImages();

}  // namespace forebay::kernels::cuda
