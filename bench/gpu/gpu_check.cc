// What bench/gpu.sh runs on a machine with a GPU: the tests of the kernels, which CI runs on an
// emulation, on the GPU itself; what the machine is; its limits.
//
//   gpu_check facts     a line of JSON
//   gpu_check limits    a line of JSON a figure
//   gpu_check [GoogleTest's flags]
//
// Ends with 2 where no GPU can be used, with 3 where a kernel does not end.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "bench/gpu/gpu_heap.h"
#include "device/cuda/driver.h"
#include "device/cuda/modules.h"
#include "device/cuda/testing/driver_under_test.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/cuda/trial/params.h"

namespace forebay::bench {
namespace {

namespace cu = device::cu;
using device::CudaKernel;
using device::LaunchShape;
using Clock = std::chrono::steady_clock;

constexpr size_t kHeapBytes = size_t{2} << 30;
constexpr double kLongestKernel = 20;  // seconds

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The first GPU, a stream, and errors that end the program.
class Gpu {
 public:
  Gpu() {
    base::Result<const device::Driver*> opened = device::OpenDriver();
    if (!opened.ok()) Exit(opened.status());
    driver_ = *opened;
    Do(driver_->DeviceGet(&device_, 0), "cuDeviceGet");
    Do(driver_->DevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
    Do(driver_->CtxSetCurrent(context_), "cuCtxSetCurrent");
    Do(driver_->StreamCreateWithPriority(&stream, cu::kStreamNonBlocking, 0), "a stream");
    architecture_ = Attribute(cu::Attribute::kMajor) * 10 + Attribute(cu::Attribute::kMinor);
    modules_ = std::make_unique<device::CudaModules>(*driver_, architecture_);
  }

  const device::Driver& driver() const { return *driver_; }
  int architecture() const { return architecture_; }
  cu::Device device() const { return device_; }
  int Attribute(cu::Attribute attribute) const {
    int value = 0;
    Do(driver_->DeviceGetAttribute(&value, attribute, device_), "cuDeviceGetAttribute");
    return value;
  }
  void Do(cu::Result result, const char* what) const {
    if (result != cu::kSuccess) Exit(driver_->Check(result, what));
  }
  base::Status Launch(const CudaKernel& kernel, const LaunchShape& shape, const void* params) {
    return modules_->Launch(kernel, shape, params, stream);
  }
  template <typename Params>
  void Launch(std::string_view name, const LaunchShape& shape, const Params& params) {
    const base::Status status = Launch(kernels::cuda::KernelNamed(name), shape, &params);
    if (!status.ok()) Exit(status);
  }
  // Waits for the stream; a kernel that hangs ends the program.
  base::Status Wait() {
    const Clock::time_point start = Clock::now();
    for (;;) {
      const cu::Result result = driver_->StreamQuery(stream);
      if (result != cu::kNotReady) return driver_->Check(result, "waiting for a kernel");
      if (SecondsSince(start) > kLongestKernel) {
        fmt::print("a kernel has not ended in {} s\n", kLongestKernel);
        std::fflush(stdout);
        std::_Exit(3);
      }
    }
  }
  [[noreturn]] static void Exit(const base::Status& status) {
    fmt::print("{}\n", status.ToString());
    std::fflush(stdout);
    std::_Exit(2);
  }

  cu::Stream stream = nullptr;

 private:
  const device::Driver* driver_ = nullptr;
  cu::Device device_ = 0;
  cu::Context context_ = nullptr;
  int architecture_ = 0;
  std::unique_ptr<device::CudaModules> modules_;
};

class GpuLaunch final : public device::LaunchContext {
 public:
  explicit GpuLaunch(Gpu& gpu) : gpu_(gpu) {}
  void LaunchBytes(const CudaKernel& kernel, const LaunchShape& shape, const void* params,
                   size_t /*bytes*/) const override {
    if (std::ranges::any_of(shape.blocks, [](int blocks) { return blocks == 0; })) return;
    const base::Status status = gpu_.Launch(kernel, shape, params);
    if (status_.ok()) status_ = status;
  }
  const base::Status& status() const { return status_; }

 private:
  Gpu& gpu_;
  mutable base::Status status_;
};

class GpuLauncher final : public kernels::cuda::testing::Launcher {
 public:
  explicit GpuLauncher(Gpu& gpu) : gpu_(gpu) {}
  int launches() const override { return 10; }
  bool fast() const override { return true; }
  base::Status Run(int /*launch*/,
                   const std::function<void(const device::LaunchContext&)>& enqueue) override {
    const GpuLaunch context(gpu_);
    enqueue(context);
    const base::Status ended = gpu_.Wait();
    return context.status().ok() ? ended : context.status();
  }

 private:
  Gpu& gpu_;
};

void PrintFacts(Gpu& gpu) {
  char name[256] = "";
  size_t free = 0, total = 0;
  int version = 0;
  gpu.Do(gpu.driver().DeviceGetName(name, sizeof name, gpu.device()), "cuDeviceGetName");
  gpu.Do(gpu.driver().MemGetInfo(&free, &total), "cuMemGetInfo");
  gpu.Do(gpu.driver().DriverGetVersion(&version), "cuDriverGetVersion");
  fmt::print(
      "{{\"gpu\": \"{}\", \"compute_capability\": {}.{}, \"multiprocessors\": {}, \"memory\": {}, "
      "\"free\": {}, \"l2\": {}, \"shared_a_block\": {}, \"driver_cuda\": {}, \"images\": {}}}\n",
      name, gpu.architecture() / 10, gpu.architecture() % 10,
      gpu.Attribute(cu::Attribute::kMultiprocessors), total, free,
      gpu.Attribute(cu::Attribute::kL2Bytes), gpu.Attribute(cu::Attribute::kSharedPerBlock),
      version, kernels::cuda::HasImages());
}

// Median seconds of `body` on the stream, between two events, after a first run that does not
// count.
double OnStream(Gpu& gpu, const std::function<void()>& body, int rounds = 7) {
  const device::Driver& driver = gpu.driver();
  cu::Event begin, end;
  gpu.Do(driver.EventCreate(&begin, cu::kEventDefault), "an event");
  gpu.Do(driver.EventCreate(&end, cu::kEventDefault), "an event");
  std::vector<float> times;
  for (int round = -1; round < rounds; ++round) {
    gpu.Do(driver.EventRecord(begin, gpu.stream), "cuEventRecord");
    body();
    gpu.Do(driver.EventRecord(end, gpu.stream), "cuEventRecord");
    const base::Status status = gpu.Wait();
    if (!status.ok()) Gpu::Exit(status);
    float milliseconds = 0;
    gpu.Do(driver.EventElapsedTime(&milliseconds, begin, end), "cuEventElapsedTime");
    if (round >= 0) times.push_back(milliseconds);
  }
  std::ranges::sort(times);
  gpu.Do(driver.EventDestroy(begin), "cuEventDestroy");
  gpu.Do(driver.EventDestroy(end), "cuEventDestroy");
  return 1e-3 * times[times.size() / 2];
}

void PrintFigure(std::string_view name, double value, std::string_view unit) {
  fmt::print("{{\"figure\": \"{}\", \"value\": {:.4g}, \"unit\": \"{}\"}}\n", name, value, unit);
  std::fflush(stdout);
}

void PrintLimits(Gpu& gpu) {
  const device::Driver& driver = gpu.driver();
  constexpr size_t kBytes = size_t{2} << 30;
  cu::DevicePtr from = 0, to = 0;
  gpu.Do(driver.MemAlloc(&from, kBytes), "cuMemAlloc");
  gpu.Do(driver.MemAlloc(&to, kBytes), "cuMemAlloc");
  // No zeros: they may be read and moved faster than data.
  gpu.Do(driver.MemsetD8Async(from, 0x5A, kBytes, gpu.stream), "cuMemsetD8Async");
  gpu.Do(driver.MemsetD8Async(to, 0x33, kBytes, gpu.stream), "cuMemsetD8Async");
  const kernels::cuda::ReadTrialParams read{reinterpret_cast<const uint32_t*>(from),
                                            static_cast<int64_t>(kBytes / 16),
                                            reinterpret_cast<uint32_t*>(to)};
  const LaunchShape readers{.blocks = {gpu.Attribute(cu::Attribute::kMultiprocessors) * 4, 1, 1},
                            .threads = 512};
  PrintFigure("read",
              kBytes / OnStream(gpu, [&] { gpu.Launch("trial_read", readers, read); }) * 1e-9,
              "GB/s");
  const auto copy = [&](cu::DevicePtr target, cu::DevicePtr source, size_t bytes) {
    return [&gpu, &driver, target, source, bytes] {
      gpu.Do(driver.MemcpyAsync(target, source, bytes, gpu.stream), "cuMemcpyAsync");
    };
  };
  PrintFigure("copy 256 MiB on the device", 0x1p28 / OnStream(gpu, copy(to, from, 1 << 28)) * 1e-9,
              "GB/s moved");
  PrintFigure("copy 8 MiB on the device", 0x1p23 / OnStream(gpu, copy(to, from, 1 << 23)) * 1e-9,
              "GB/s moved");
  void* pinned = nullptr;
  constexpr size_t kPinned = size_t{256} << 20;
  const Clock::time_point start = Clock::now();
  gpu.Do(driver.MemHostAlloc(&pinned, kPinned, cu::kHostPortable | cu::kHostMapped),
         "cuMemHostAlloc");
  PrintFigure("pin 256 MiB", SecondsSince(start) * 1e3, "ms");
  const auto host = reinterpret_cast<cu::DevicePtr>(pinned);
  for (const size_t bytes : {size_t{1} << 20, size_t{8} << 20, kPinned}) {
    PrintFigure(fmt::format("host to device, {} MiB", bytes >> 20),
                static_cast<double>(bytes) / OnStream(gpu, copy(to, host, bytes)) * 1e-9, "GB/s");
    PrintFigure(fmt::format("device to host, {} MiB", bytes >> 20),
                static_cast<double>(bytes) / OnStream(gpu, copy(host, from, bytes)) * 1e-9, "GB/s");
  }
  constexpr int kLaunches = 1000;
  const LaunchShape one{.threads = 32};
  const auto microseconds = [](double seconds, int n) { return seconds / n * 1e6; };
  PrintFigure("launch",
              microseconds(OnStream(gpu,
                                    [&] {
                                      for (int i = 0; i < kLaunches; ++i)
                                        gpu.Launch("trial_nothing", one, read);
                                    }),
                           kLaunches),
              "us");
  const auto round_trip = [&](const std::function<void()>& body) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kLaunches; ++i) body();
    return microseconds(SecondsSince(begin), kLaunches);
  };
  PrintFigure("launch and wait", round_trip([&] {
                gpu.Launch("trial_nothing", one, read);
                (void)gpu.Wait();
              }),
              "us");
  PrintFigure("write of a value, and wait", round_trip([&] {
                gpu.Do(driver.StreamWriteValue64(gpu.stream, host, 1, cu::kWriteDefault),
                       "cuStreamWriteValue64");
                (void)gpu.Wait();
              }),
              "us");
  PrintFigure("wait for a value that is there", round_trip([&] {
                gpu.Do(driver.StreamWaitValue64(gpu.stream, host, 0, cu::kWaitGreaterOrEqual),
                       "cuStreamWaitValue64");
                (void)gpu.Wait();
              }),
              "us");
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) {
  using namespace forebay;
  bench::Gpu gpu;
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "facts") {
    bench::PrintFacts(gpu);
  } else if (command == "limits") {
    bench::PrintLimits(gpu);
  } else {
    void* heap = nullptr;
    gpu.Do(gpu.driver().MemHostAlloc(&heap, bench::kHeapBytes,
                                     device::cu::kHostPortable | device::cu::kHostMapped),
           "pinned memory for the tests");
    bench::UsePinnedHeap(heap, bench::kHeapBytes);
    static bench::GpuLauncher launcher(gpu);
    kernels::cuda::testing::SetLauncher(&launcher);
    device::testing::SetRealDriver(&gpu.driver());
    testing::InitGoogleTest(&argc, argv);
    const int failed = RUN_ALL_TESTS();
    std::fflush(stdout);
    std::_Exit(failed);  // the heap goes with the process
  }
  std::fflush(stdout);
  std::_Exit(0);
}
