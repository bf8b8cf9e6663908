#include "kernels/cuda/registry.h"

#include <string_view>
#include <unordered_map>

#include "base/check.h"

namespace forebay::kernels::cuda {

const device::CudaKernel& KernelNamed(std::string_view name) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const device::CudaKernel*> map;
    for (const device::CudaKernel& kernel : Kernels()) map.emplace(kernel.name, &kernel);
    return map;
  }();
  const auto found = by_name.find(name);
  FB_CHECK(found != by_name.end(), "no kernel '{}' is declared in kernels/cuda/CMakeLists.txt",
           name);
  return *found->second;
}

bool HasImages() { return !Kernels().front().image.empty(); }

}  // namespace forebay::kernels::cuda
