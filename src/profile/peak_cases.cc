#include <algorithm>

#include "profile/cases.h"
#include "profile/peak_ops.h"
#include "runtime/topology.h"

namespace forebay::profile {
namespace {

double Peak(Bench& bench, const kernels::PeakProbe& probe) {
  const auto run = [&](device::Stream& stream, int64_t) {
    stream.Enqueue(device::MakeOperation<&RunPeak>({.label = "peak"}, PeakArgs{probe.loop}));
  };
  return kPeakRounds * probe.flops_per_round * bench.device().num_workers() / bench.SecondsOf(run);
}

double Stream(Bench& bench) {
  constexpr int64_t kBytes = 256 << 20;
  const auto run = [&](device::Stream& stream, int64_t i) {
    const std::byte* from = bench.data().data + i % 2 * kBytes;
    stream.Enqueue(device::MakeOperation<&RunRead>({.label = "read"}, ReadArgs{from, kBytes}));
  };
  return static_cast<double>(kBytes) / bench.SecondsOf(run);
}

}  // namespace

void MeasurePeaks(Bench& bench, cost::DeviceProfile* profile) {
  const kernels::Isa isa = bench.kernels().isa;
  const kernels::PeakProbe& fma = kernels::FmaProbeOf(isa);
  const char* product = isa == kernels::Isa::kAmx          ? "tdpbf16ps from registers"
                        : isa == kernels::Isa::kAvx512bf16 ? "vdpbf16ps from registers"
                                                           : "fp32 FMA from registers";
  const int workers = bench.device().num_workers();
  const auto source = [&](const char* what) {
    return fmt::format("{}, {} threads", what, workers);
  };
  SetNumber(profile, "bf16_flops", Peak(bench, kernels::ProbeOf(isa)), cost::Mark::kMeasured,
            source(product));
  if (const kernels::PeakProbe* const int8 = kernels::Int8ProbeOf(isa)) {
    SetNumber(profile, "int8_flops", Peak(bench, *int8), cost::Mark::kMeasured,
              source("vpdpbusd from registers"));
  }
  SetNumber(profile, "f32_flops", Peak(bench, fma), cost::Mark::kMeasured,
            source("fp32 FMA from registers"));
  SetNumber(profile, "memory_bytes_per_s", Stream(bench), cost::Mark::kMeasured,
            source("256 MiB read once"));
}

base::Status MeasureMachine(runtime::Runtime& runtime, BenchOptions options,
                            cost::DeviceProfile* profile) {
  const int cores = runtime::ReadTopology().usable_cores;
  if (cores <= profile->cores) return base::Status::Ok();
  options.threads = cores;
  FB_ASSIGN_OR_RETURN(const auto all, Bench::Create(runtime, options));
  SetNumber(profile, "machine_bytes_per_s", Stream(*all), cost::Mark::kMeasured,
            fmt::format("256 MiB read once, {} threads", cores));
  return base::Status::Ok();
}

}  // namespace forebay::profile
