#include "profile/rates.h"

#include <algorithm>
#include <vector>

#include "base/units.h"
#include "device/device.h"
#include "profile/peak_ops.h"

namespace forebay::profile {
namespace {

constexpr int64_t kBytes = 256 * base::kMiB;
constexpr int kSamples = 9;

struct FillArgs {
  std::byte* data;
};
void Fill(const FillArgs& args, const device::WorkerContext& context) {
  const device::Range part = device::StaticPart(context, kBytes, 4096);
  for (int64_t i = part.begin; i < part.end; ++i) args.data[i] = static_cast<std::byte>(i % 251);
}
double MedianSeconds(runtime::Runtime& runtime, device::Device& device,
                     const device::Operation& operation) {
  std::vector<double> samples;
  for (int i = 0; i < kSamples; ++i) {
    const runtime::TimeNs start = runtime.Now();
    device.compute().Enqueue(operation);
    (void)device.Synchronize(device.compute());
    samples.push_back(runtime::SecondsOf(runtime.Now() - start));
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
  device->compute().Enqueue(
      device::MakeOperation<&Fill>({.label = "fill"}, FillArgs{region->data}));
  FB_ASSIGN_OR_RETURN(const kernels::KernelSet* kernels, kernels::ChooseKernels(isa));
  const kernels::PeakProbe& probe = kernels::ProbeOf(kernels->isa);
  const double read = MedianSeconds(
      runtime, *device,
      device::MakeOperation<&RunRead>({.label = "read"}, ReadArgs{region->data, kBytes}));
  const double peak = MedianSeconds(
      runtime, *device, device::MakeOperation<&RunPeak>({.label = "peak"}, PeakArgs{probe.loop}));
  return Rates{kPeakRounds * probe.flops_per_round * workers / peak, kBytes / read};
}

}  // namespace forebay::profile
