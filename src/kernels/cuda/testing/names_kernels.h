// A launcher's context that knows which kernel was launched last.
#pragma once

#include <string_view>

#include "device/cuda/launch_context.h"

namespace forebay::kernels::cuda::testing {

class NamesKernels final : public device::LaunchContext {
 public:
  NamesKernels(const device::LaunchContext& of, std::string_view* name) : of_(of), name_(name) {
    architecture = of.architecture;
    multiprocessors = of.multiprocessors;
    scratch = of.scratch;
    scratch_bytes = of.scratch_bytes;
  }
  void LaunchBytes(const device::CudaKernel& kernel, const device::LaunchShape& shape,
                   const void* params, size_t bytes) const override {
    *name_ = kernel.name;
    of_.LaunchBytes(kernel, shape, params, bytes);
  }
  void RunOnHost(device::Operation::RunFn run, const void* args, size_t bytes) const override {
    of_.RunOnHost(run, args, bytes);
  }

 private:
  const device::LaunchContext& of_;
  std::string_view* const name_;
};

}  // namespace forebay::kernels::cuda::testing
