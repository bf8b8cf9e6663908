#include "kernels/cuda/registry.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::kernels::cuda {

const device::CudaKernel& KernelNamed(std::string_view name) {
  const auto kernels = Kernels();
  const auto found =
      std::ranges::find(kernels, name, [](const auto& kernel) { return kernel.name; });
  FB_CHECK(found != kernels.end(), "no kernel '{}' is declared in kernels/cuda/CMakeLists.txt",
           name);
  return *found;
}

bool HasImages() { return !Kernels().front().image.empty(); }

}  // namespace forebay::kernels::cuda
