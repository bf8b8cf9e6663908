#include "kernels/cuda/testing/emulated_launch.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "device/lone_worker.h"

namespace forebay::kernels::cuda::testing {

const EmulatedKernel& EmulatedKernelNamed(std::string_view name) {
  const auto kernels = EmulatedKernels();
  const auto found = std::ranges::find(kernels, name, &EmulatedKernel::name);
  FB_CHECK(found != kernels.end(), "kernel '{}' is not emulated", name);
  return *found;
}

base::Status RunEmulated(const device::CudaKernel& kernel, const device::LaunchShape& shape,
                         const void* params, size_t bytes, uint64_t seed) {
  gpu::emulation::Grid grid{.threads = shape.threads,
                            .cluster_blocks = shape.cluster_blocks,
                            .shared_bytes = static_cast<size_t>(shape.shared_bytes),
                            .seed = seed};
  std::copy(std::begin(shape.blocks), std::end(shape.blocks), grid.blocks);
  const base::Status status =
      gpu::emulation::RunGrid(EmulatedKernelNamed(kernel.name).function, params, bytes, grid);
  return status.ok() ? status : status.WithContext(kernel.name);
}

void EmulatedLaunch::LaunchBytes(const device::CudaKernel& kernel, const device::LaunchShape& shape,
                                 const void* params, size_t bytes) const {
  const base::Status status = RunEmulated(kernel, shape, params, bytes, seed_);
  if (status_.ok()) status_ = status;
}

void EmulatedLaunch::RunOnHost(device::Operation::RunFn run, const void* args, size_t) const {
  run(args, device::LoneWorker());
}

}  // namespace forebay::kernels::cuda::testing
