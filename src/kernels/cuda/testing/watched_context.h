// A launcher's context with less scratch, which knows what kernel was launched last.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "device/cuda/launch_context.h"

namespace forebay::kernels::cuda::testing {

class WatchedContext final : public device::LaunchContext {
 public:
  // `name`: of the last kernel; null: nobody asks.
  explicit WatchedContext(const device::LaunchContext& of, std::string_view* name = nullptr,
                          uint64_t most_scratch = UINT64_MAX)
      : of_(of), name_(name) {
    architecture = of.architecture;
    multiprocessors = of.multiprocessors;
    scratch = of.scratch;
    scratch_bytes = std::min(most_scratch, of.scratch_bytes);
  }
  void LaunchBytes(const device::CudaKernel& kernel, const device::LaunchShape& shape,
                   const void* params, size_t bytes) const override {
    if (name_ != nullptr) *name_ = kernel.name;
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
