#include "device/cuda/modules.h"

#include <fmt/core.h>

namespace forebay::device {

CudaModules::CudaModules(const Driver& driver, int architecture)
    : driver_(driver), architecture_(architecture) {
  constexpr int kFirstWithOverlap = 12030;
  int version = 0;
  overlaps_ = driver.DriverGetVersion(&version) == cu::kSuccess && version >= kFirstWithOverlap &&
              architecture >= 90;
}

CudaModules::~CudaModules() {
  for (const auto& [image, module] : modules_) driver_.ModuleUnload(module);
}

base::Result<CudaModules::Entry*> CudaModules::Find(const CudaKernel& kernel) {
  if (const auto found = entries_.find(&kernel); found != entries_.end()) return &found->second;
  if (kernel.image.empty() && driver_.needs_images) {
    return base::Status(kCudaUnavailable,
                        fmt::format("kernel {} is not in this build, which was made without nvcc: "
                                    "`tools/setup.sh cuda` fetches one, then build again",
                                    kernel.name));
  }
  if (architecture_ < kernel.least_architecture) {
    return base::Status(
        kCudaUnavailable,
        fmt::format("kernel {} needs compute capability {}.{}, the GPU has {}.{}", kernel.name,
                    kernel.least_architecture / 10, kernel.least_architecture % 10,
                    architecture_ / 10, architecture_ % 10));
  }
  cu::Module& module = modules_[kernel.image.data()];
  if (module == nullptr) {
    FB_RETURN_IF_ERROR(driver_.Check(driver_.ModuleLoadData(&module, kernel.image.data()),
                                     fmt::format("loading the image of kernel {}", kernel.name)));
  }
  Entry entry;
  FB_RETURN_IF_ERROR(driver_.Check(driver_.ModuleGetFunction(&entry.function, module, kernel.name),
                                   fmt::format("finding kernel {}", kernel.name)));
  return &entries_.emplace(&kernel, entry).first->second;
}

base::Status CudaModules::Load(std::span<const CudaKernel> kernels) {
  const std::lock_guard lock(mutex_);
  for (const CudaKernel& kernel : kernels) {
    if (kernel.image.empty() && driver_.needs_images) continue;
    if (architecture_ < kernel.least_architecture) continue;
    FB_RETURN_IF_ERROR(Find(kernel).status());
  }
  return base::Status::Ok();
}

base::Result<cu::Function> CudaModules::Prepare(const CudaKernel& kernel,
                                                const LaunchShape& shape) {
  const std::lock_guard lock(mutex_);
  FB_ASSIGN_OR_RETURN(Entry * entry, Find(kernel));
  if (shape.shared_bytes > entry->shared_bytes) {
    FB_RETURN_IF_ERROR(driver_.Check(
        driver_.FuncSetAttribute(entry->function, cu::FunctionAttribute::kMaxDynamicShared,
                                 shape.shared_bytes),
        fmt::format("{} bytes of shared memory for kernel {}", shape.shared_bytes, kernel.name)));
    entry->shared_bytes = shape.shared_bytes;
  }
  return entry->function;
}

base::Status CudaModules::Launch(const CudaKernel& kernel, cu::Function function,
                                 const LaunchShape& shape, const void* params,
                                 cu::Stream stream) const {
  cu::LaunchAttribute attributes[2] = {};
  cu::LaunchConfig config{};
  if (shape.cluster_blocks > 1) {
    cu::LaunchAttribute& cluster = attributes[config.num_attributes++];
    cluster.id = cu::kLaunchCluster;
    cluster.value.cluster[0] = static_cast<unsigned>(shape.cluster_blocks);
    cluster.value.cluster[1] = cluster.value.cluster[2] = 1;
  }
  if (shape.overlaps && overlaps_) {
    cu::LaunchAttribute& programmatic = attributes[config.num_attributes++];
    programmatic.id = cu::kLaunchProgrammatic;
    programmatic.value.programmatic = 1;
  }
  for (int i = 0; i < 3; ++i) config.grid[i] = static_cast<unsigned>(shape.blocks[i]);
  config.block[0] = static_cast<unsigned>(shape.threads);
  config.block[1] = config.block[2] = 1;
  config.shared_bytes = static_cast<unsigned>(shape.shared_bytes);
  config.stream = stream;
  config.attributes = attributes;
  void* arguments[] = {const_cast<void*>(params)};
  const cu::Result launched = driver_.LaunchKernelEx(&config, function, arguments, nullptr);
  if (launched == cu::kSuccess) return base::Status::Ok();
  return driver_.Check(
      launched, fmt::format("launching kernel {} of {} x {} x {} blocks of {} threads", kernel.name,
                            shape.blocks[0], shape.blocks[1], shape.blocks[2], shape.threads));
}

}  // namespace forebay::device
