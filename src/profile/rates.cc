#include "profile/rates.h"

#include <algorithm>
#include <vector>

#include "base/units.h"
#include "device/device.h"
#include "kernels/cpu/probes.h"

namespace forebay::profile {
namespace {

constexpr int64_t kBytes = 256 * base::kMiB;
constexpr int64_t kRounds = 500'000;  // 1 to 3 ms
constexpr int kSamples = 9;

struct PeakArgs {
  void (*loop)(int64_t rounds, const float* data);
};
void RunPeak(const PeakArgs& args, const device::WorkerContext&) {
  float data[32];
  for (int i = 0; i < 32; ++i) data[i] = 0.001f * static_cast<float>(i + 1);
  args.loop(kRounds, data);
}

struct MemoryArgs {
  std::byte* data;
};
void Fill(const MemoryArgs& args, const device::WorkerContext& context) {
  const device::Range part = device::StaticPart(context, kBytes, 4096);
  for (int64_t i = part.begin; i < part.end; ++i) args.data[i] = static_cast<std::byte>(i % 251);
}
void Read(const MemoryArgs& args, const device::WorkerContext& context) {
  const device::Range part = device::StaticPart(context, kBytes, 4096);
  kernels::ReadAll(args.data + part.begin, part.end - part.begin);
}

double MedianSeconds(runtime::Runtime& runtime, device::Device& device, const device::Operation& operation) {
  std::vector<double> samples;
  for (int i = 0; i < kSamples; ++i) {
    const runtime::TimeNs start = runtime.Now();
    device.compute().Enqueue(operation);
    (void)device.Synchronize(device.compute());
    samples.push_back(static_cast<double>(runtime.Now() - start) * 1e-9);
  }
  std::ranges::nth_element(samples, samples.begin() + kSamples / 2);
  return samples[kSamples / 2];
}

}  // namespace

base::Result<Rates> MeasureRates(runtime::Runtime& runtime, int workers, std::string_view isa) {
  device::CpuDeviceOptions options;
  options.num_workers = workers;
  options.scratch_bytes = 4096;
  options.memory_bytes = kBytes + 16 * base::kMiB;
  FB_ASSIGN_OR_RETURN(const auto device, device::CreateCpuDevice(runtime, options));
  FB_ASSIGN_OR_RETURN(const device::Region* region, device->arena().Allocate("rates", kBytes));
  const MemoryArgs memory{region->data};
  device->compute().Enqueue(device::MakeOperation<&Fill>({.label = "fill"}, memory));
  const kernels::PeakProbe& probe = isa == "avx512bf16" ? kernels::kDotProbe
                                    : isa == "avx512f"  ? kernels::kFma512Probe
                                                        : kernels::kFma256Probe;
  const double read = MedianSeconds(runtime, *device, device::MakeOperation<&Read>({.label = "read"}, memory));
  const double peak = MedianSeconds(runtime, *device, device::MakeOperation<&RunPeak>({.label = "peak"}, PeakArgs{probe.loop}));
  return Rates{kRounds * probe.flops_per_round * workers / peak, kBytes / read};
}

}  // namespace forebay::profile
