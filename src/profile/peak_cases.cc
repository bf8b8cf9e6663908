#include <algorithm>

#include "kernels/cpu/probes.h"
#include "profile/cases.h"

namespace forebay::profile {
namespace {

constexpr int64_t kRounds = 500'000;  // 1 to 3 ms

struct PeakArgs {
  void (*loop)(int64_t rounds, const float* data);
};
void RunPeak(const PeakArgs& args, const device::WorkerContext&) {
  float data[32];
  for (int i = 0; i < 32; ++i) data[i] = 0.001f * static_cast<float>(i + 1);
  args.loop(kRounds, data);
}

struct ReadArgs {
  const std::byte* data;
  int64_t bytes;
};
void RunRead(const ReadArgs& args, const device::WorkerContext& context) {
  const device::Range part = device::StaticPart(context, args.bytes, 4096);
  kernels::ReadAll(args.data + part.begin, part.end - part.begin);
}

double Peak(Bench& bench, const kernels::PeakProbe& probe) {
  const auto run = [&](device::Stream& stream, int64_t) {
    stream.Enqueue(device::MakeOperation<&RunPeak>({.label = "peak"}, PeakArgs{probe.loop}));
  };
  return kRounds * probe.flops_per_round * bench.device().num_workers() / bench.SecondsOf(run);
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
  const bool wide = isa == kernels::Isa::kAvx512bf16 || isa == kernels::Isa::kAvx512f;
  const kernels::PeakProbe& fma = wide ? kernels::kFma512Probe : kernels::kFma256Probe;
  const kernels::PeakProbe& dot = isa == kernels::Isa::kAvx512bf16 ? kernels::kDotProbe : fma;
  const int workers = bench.device().num_workers();
  const auto source = [&](const char* what) { return fmt::format("{}, {} threads", what, workers); };
  SetNumber(profile, "bf16_flops", Peak(bench, dot), cost::Mark::kMeasured,
            source(isa == kernels::Isa::kAvx512bf16 ? "vdpbf16ps from registers" : "fp32 FMA from registers"));
  SetNumber(profile, "f32_flops", Peak(bench, fma), cost::Mark::kMeasured, source("fp32 FMA from registers"));
  SetNumber(profile, "memory_bytes_per_s", Stream(bench), cost::Mark::kMeasured, source("256 MiB read once"));
}

}  // namespace forebay::profile
