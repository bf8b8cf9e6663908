// Launches that run at once on the emulation.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "device/cuda/launch_context.h"
#include "kernels/cuda/emulation/grid.h"
#include "kernels/cuda/registry.h"

namespace forebay::kernels::cuda::testing {

struct EmulatedKernel {
  std::string_view name;
  gpu::emulation::ThreadFunction function;
  size_t (*params_bytes)();
};
// Those that are declared in kernels/cuda/CMakeLists.txt.
std::span<const EmulatedKernel> EmulatedKernels();

// REQUIRES: it was declared.
const EmulatedKernel& EmulatedKernelNamed(std::string_view name);

// Runs a declared kernel. Errors: kKernelFault, with the kernel's name.
// `previous`: Grid::previous.
base::Status RunEmulated(const device::CudaKernel& kernel, const device::LaunchShape& shape,
                         const void* params, size_t bytes, uint64_t seed,
                         std::function<void()> previous = {});

// A launch runs when what comes behind it does not overlap with it, or awaits it; the first fault
// stays.
class EmulatedLaunch final : public device::LaunchContext {
 public:
  explicit EmulatedLaunch(uint64_t seed) : seed_(seed) {
    architecture = 90;
    multiprocessors = 2 + static_cast<int>(seed % 3);
    kernels = Kernels();
    scratch = scratch_memory_.data();
    scratch_bytes = scratch_memory_.size();
  }
  void LaunchBytes(const device::CudaKernel& kernel, const device::LaunchShape& shape,
                   const void* params, size_t bytes) const override;
  void RunOnHost(device::Operation::RunFn run, const void* args, size_t bytes) const override;
  // Of all launches, which have run then.
  const base::Status& status() const {
    Flush();
    return status_;
  }

 private:
  struct Kept {
    const device::CudaKernel* kernel;
    device::LaunchShape shape;
    std::vector<std::byte> params;
    std::unique_ptr<Kept> previous;  // that it overlaps with
  };
  void Run(const Kept& launch) const;
  void Flush() const;

  const uint64_t seed_;
  std::vector<std::byte> scratch_memory_ = std::vector<std::byte>(1 << 20, std::byte{0xFF});
  mutable std::unique_ptr<Kept> kept_;
  mutable base::Status status_;
};

}  // namespace forebay::kernels::cuda::testing
