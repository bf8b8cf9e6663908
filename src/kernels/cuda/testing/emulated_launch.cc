#include "kernels/cuda/testing/emulated_launch.h"

#include <algorithm>
#include <iterator>
#include <utility>

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
                         const void* params, size_t bytes, uint64_t seed,
                         std::function<void()> previous) {
  gpu::emulation::Grid grid{.threads = shape.threads,
                            .cluster_blocks = shape.cluster_blocks,
                            .shared_bytes = static_cast<size_t>(shape.shared_bytes),
                            .seed = seed,
                            .previous = std::move(previous)};
  std::copy(std::begin(shape.blocks), std::end(shape.blocks), grid.blocks);
  const base::Status status =
      gpu::emulation::RunGrid(EmulatedKernelNamed(kernel.name).function, params, bytes, grid);
  return status.ok() ? status : status.WithContext(kernel.name);
}

void EmulatedLaunch::LaunchBytes(const device::CudaKernel& kernel, const device::LaunchShape& shape,
                                 const void* params, size_t bytes) const {
  if (std::ranges::any_of(shape.blocks, [](int blocks) { return blocks == 0; })) return;
  if (!shape.overlaps) Flush();
  const auto* const from = static_cast<const std::byte*>(params);
  kept_ = std::make_unique<Kept>(
      Kept{&kernel, shape, std::vector(from, from + bytes), std::move(kept_)});
}

void EmulatedLaunch::Run(const Kept& launch) const {
  std::function<void()> previous;
  if (launch.previous) previous = [&] { Run(*launch.previous); };
  const base::Status status = RunEmulated(*launch.kernel, launch.shape, launch.params.data(),
                                          launch.params.size(), seed_, std::move(previous));
  if (status_.ok()) status_ = status;
}

void EmulatedLaunch::Flush() const {
  if (kept_) Run(*kept_);
  kept_.reset();
}

void EmulatedLaunch::RunOnHost(device::Operation::RunFn run, const void* args, size_t) const {
  Flush();
  run(args, device::LoneWorker());
}

}  // namespace forebay::kernels::cuda::testing
