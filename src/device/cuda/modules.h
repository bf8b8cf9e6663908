// The kernels of one context. Loading an image may wait for all streams of the GPU: where one of
// them waits for what another rank is yet to enqueue, a first launch would never return. So `Load`
// comes before ranks meet.
#pragma once

#include <map>
#include <mutex>
#include <span>

#include "device/cuda/driver.h"
#include "device/cuda/launch_context.h"

namespace forebay::device {

// Thread-safe. REQUIRES of all calls: the context is current on the thread.
class CudaModules {
 public:
  // `architecture`: the GPU's, tenfold. The driver and the context must outlive it.
  CudaModules(const Driver& driver, int architecture);
  ~CudaModules();
  CudaModules(const CudaModules&) = delete;

  // Those of the kernels that the GPU and this build have. Errors: kCudaFailed.
  base::Status Load(std::span<const CudaKernel> kernels);
  // The kernel, which may have as much shared memory as the shape says. Loads one that `Load` was
  // not given. Errors: kCudaUnavailable (built without kernels, or the GPU is older than the
  // kernel's), kCudaFailed.
  base::Result<cu::Function> Prepare(const CudaKernel& kernel, const LaunchShape& shape);
  // Errors: kCudaFailed. REQUIRES: `Prepare` gave the function for this shape.
  base::Status Launch(const CudaKernel& kernel, cu::Function function, const LaunchShape& shape,
                      const void* params, cu::Stream stream) const;
  // Both.
  base::Status Launch(const CudaKernel& kernel, const LaunchShape& shape, const void* params,
                      cu::Stream stream) {
    FB_ASSIGN_OR_RETURN(const cu::Function function, Prepare(kernel, shape));
    return Launch(kernel, function, shape, params, stream);
  }

 private:
  struct Entry {
    cu::Function function = nullptr;
    int shared_bytes = 48 << 10;  // that it may ask for
  };

  base::Result<Entry*> Find(const CudaKernel& kernel);

  const Driver& driver_;
  const int architecture_;
  bool overlaps_ = false;  // whether the driver takes such launches in graphs too
  std::mutex mutex_;
  std::map<const std::byte*, cu::Module> modules_;  // by image
  std::map<const CudaKernel*, Entry> entries_;
};

}  // namespace forebay::device
