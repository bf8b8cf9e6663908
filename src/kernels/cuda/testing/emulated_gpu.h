// The emulated driver with the kernels of this program.
#pragma once

#include <algorithm>
#include <string_view>

#include "device/cuda/testing/emulated_driver.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/testing/emulated_launch.h"

namespace forebay::kernels::cuda::testing {

inline base::Status RunLaunched(std::string_view name, const device::cu::LaunchConfig& config,
                                const void* params, uint64_t seed) {
  device::LaunchShape shape{.threads = static_cast<int>(config.block[0]),
                            .shared_bytes = static_cast<int>(config.shared_bytes)};
  std::ranges::copy(config.grid, shape.blocks);
  for (unsigned i = 0; i < config.num_attributes; ++i) {
    const device::cu::LaunchAttribute& attribute = config.attributes[i];
    if (attribute.id == device::cu::kLaunchCluster)
      shape.cluster_blocks = static_cast<int>(attribute.value.cluster[0]);
  }
  return RunEmulated(KernelNamed(name), shape, params, EmulatedKernelNamed(name).params_bytes(),
                     seed);
}

// The options with the kernels beside them.
inline device::testing::EmulatedDriverOptions WithKernels(
    device::testing::EmulatedDriverOptions options) {
  options.kernel = RunLaunched;
  options.params_bytes = [](std::string_view name) {
    return EmulatedKernelNamed(name).params_bytes();
  };
  return options;
}

}  // namespace forebay::kernels::cuda::testing
