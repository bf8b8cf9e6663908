// The GPU that gpu_check runs on: launches, tests' launcher, times of the stream, lines of figures.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "device/cuda/driver.h"
#include "device/cuda/modules.h"
#include "device/lone_worker.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/testing/launcher.h"

namespace forebay::bench {

namespace cu = device::cu;
using device::CudaKernel;
using device::LaunchShape;
using Clock = std::chrono::steady_clock;

inline constexpr double kLongestKernel = 20;  // seconds

inline double SecondsSince(Clock::time_point start) {
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

  static constexpr size_t kScratchBytes = size_t{64} << 20;
  // Of kernels' launches.
  std::byte* scratch() {
    if (scratch_ == 0) Do(driver_->MemAlloc(&scratch_, kScratchBytes), "cuMemAlloc");
    return reinterpret_cast<std::byte*>(scratch_);
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
  cu::DevicePtr scratch_ = 0;
  int architecture_ = 0;
  std::unique_ptr<device::CudaModules> modules_;
};

class GpuLaunch final : public device::LaunchContext {
 public:
  explicit GpuLaunch(Gpu& gpu) : gpu_(gpu) {
    architecture = gpu.architecture();
    multiprocessors = gpu.Attribute(cu::Attribute::kMultiprocessors);
    kernels = kernels::cuda::Kernels();
    scratch = gpu.scratch();
    scratch_bytes = Gpu::kScratchBytes;
  }
  void LaunchBytes(const CudaKernel& kernel, const LaunchShape& shape, const void* params,
                   size_t /*bytes*/) const override {
    if (std::ranges::any_of(shape.blocks, [](int blocks) { return blocks == 0; })) return;
    const base::Status status = gpu_.Launch(kernel, shape, params);
    if (status_.ok()) status_ = status;
  }
  void RunOnHost(device::Operation::RunFn run, const void* args, size_t /*bytes*/) const override {
    const base::Status status = gpu_.Wait();
    if (status_.ok()) status_ = status;
    run(args, device::LoneWorker());
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

// Median seconds of `body` on the stream, between two events, after a first run that does not
// count.
inline double OnStream(Gpu& gpu, const std::function<void()>& body, int rounds = 7) {
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

inline void PrintFigure(std::string_view name, double value, std::string_view unit) {
  fmt::print("{{\"figure\": \"{}\", \"value\": {:.4g}, \"unit\": \"{}\"}}\n", name, value, unit);
  std::fflush(stdout);
}

}  // namespace forebay::bench
