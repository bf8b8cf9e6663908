#include <array>

#include "bench/gpu/figures.h"
#include "kernels/cuda/trial/params.h"

namespace forebay::bench {

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

}  // namespace forebay::bench
