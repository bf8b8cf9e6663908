// What a kernel set's functions get on a GPU in place of a worker's context: the stream that they
// launch on. The task that enqueues an operation calls its function once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/check.h"
#include "device/operation.h"

namespace forebay::device {

// A kernel of device code and the fat binary that holds it. Lives as long as the program.
struct CudaKernel {
  const char* name = "";
  std::span<const std::byte> image;  // empty: this program was built without
  int least_architecture = 0;        // compute capability, tenfold: 80, 90
};

// Whether equal parameters of kernels are equal bytes: launches that come again go as a graph. Else
// (Clang 14) padding holds anything, and few are known again.
inline constexpr bool kClearsPadding = __has_builtin(__builtin_clear_padding);

// What any GPU takes: blocks of a grid along y, and along z; with compute capability 9.0 the bytes
// of shared memory a block.
inline constexpr int kMostBlocksAlongYZ = 65535, kMostSharedBytes = 227 << 10;

struct LaunchShape {
  int blocks[3] = {1, 1, 1};
  int threads = 32;        // a block
  int shared_bytes = 0;    // dynamic, a block
  int cluster_blocks = 1;  // along x
  // The kernel awaits the one before it by itself, and may start while that one ends.
  bool overlaps = false;

  bool operator==(const LaunchShape&) const = default;
};

class LaunchContext : public WorkerContext {
 public:
  // Of the GPU: compute capability, tenfold, and multiprocessors. Grids follow from them, answers
  // do not.
  int architecture = 0, multiprocessors = 0;
  // Those of the device, for operations of rooms that know no registry.
  std::span<const CudaKernel> kernels;
  // REQUIRES: the device has it.
  const CudaKernel& KernelNamed(std::string_view name) const {
    const auto kernel = std::ranges::find(kernels, name, &CudaKernel::name);
    FB_CHECK(kernel != kernels.end(), "the device was given no kernel {}", name);
    return *kernel;
  }
  // Copies the parameters; what they point to must live until the kernel has run. A grid without
  // blocks launches nothing.
  virtual void LaunchBytes(const CudaKernel& kernel, const LaunchShape& shape, const void* params,
                           size_t bytes) const = 0;
  template <typename Params>
  void Launch(const CudaKernel& kernel, const LaunchShape& shape, Params params) const {
    static_assert(std::is_trivially_copyable_v<Params>);
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&params);
#endif
    LaunchBytes(kernel, shape, &params, sizeof params);
  }
  template <typename Params>
  void Launch(std::string_view name, const LaunchShape& shape, Params params) const {
    Launch(KernelNamed(name), shape, params);
  }
  // What a kernel gets for an address of control memory, which the device has apart
  // (MemoryUse::kControl). Any other is the device's already.
  template <typename T>
  T* OnDevice(T* address) const {
    return static_cast<T*>(const_cast<void*>(AddressOnDevice(address)));
  }
  // Stream::FetchControl, in front of code of the host that reads what kernels wrote.
  virtual void FetchControl(void* /*data*/, uint64_t /*bytes*/) const {}
  // The host calls `run` in the stream's order, with a copy of the arguments. It touches memory
  // that the host reaches alone, and calls no device.
  virtual void RunOnHost(Operation::RunFn run, const void* args, size_t bytes) const = 0;
  template <auto kFunction, typename Args>
  void OnHost(const Args& args) const {
    const Operation operation = MakeOperation<kFunction>({}, args);
    RunOnHost(operation.run, operation.args.data(), sizeof args);
  }
  void Barrier() const override {}

 private:
  virtual const void* AddressOnDevice(const void* address) const { return address; }
};

}  // namespace forebay::device
