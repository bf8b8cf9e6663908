// What this machine can do at this moment, as a line of JSON: `limits_probe [ISA] [THREADS]`. The
// register peak is that of the instruction set's widest product of bf16 pairs (fp32 FMA where it
// has none), the stream rate that of 512 MiB read once. Tiles have a second peak, with operands
// from the first cache.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/limits.h"

namespace forebay::bench {
namespace {

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<int64_t>(values.size() / 2));
  return values[values.size() / 2];
}

int Main(int argc, char** argv) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  constexpr int kPeakRounds = 31, kStreamRounds = 9;
  const std::string isa = argc > 1 ? argv[1] : "auto";
  const auto chosen = kernels::ChooseKernels(isa);
  if (!chosen.ok()) {
    fmt::print(stderr, "skipped: {}\n", chosen.status().message());
    return 1;
  }
  const int threads =
      argc > 2 ? std::atoi(argv[2]) : static_cast<int>(std::thread::hardware_concurrency());
  const PeakProbe& probe = kernels::ProbeOf((*chosen)->isa);
  kernels::testing::Team team(threads);
  std::byte* const data = HugeMemory(kBytes);
  team.Run([&](const device::WorkerContext& context) {
    const device::Range part = device::StaticPart(context, kBytes, 4096);
    for (int64_t i = part.begin; i < part.end; i += 8) {
      const uint64_t bits = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u;
      std::memcpy(data + i, &bits, 8);
    }
  });
  const bool tiles = (*chosen)->isa == kernels::Isa::kAmx;
  std::vector<double> peaks, fed, streams;
  for (int i = 0; i < kPeakRounds; ++i) {
    peaks.push_back(MeasurePeak(team, threads, probe));
    if (tiles) fed.push_back(MeasurePeak(team, threads, kTileFeedProbe));
  }
  for (int i = 0; i < kStreamRounds; ++i) streams.push_back(MeasureStream(team, data, kBytes));
  fmt::print(
      "{{\"isa\":\"{}\",\"threads\":{},\"cpu\":\"{}\",\"flops\":{:.4g},{}\"bytes_per_s\":{:.4g}}}"
      "\n",
      (*chosen)->name, threads, CpuName(), Median(peaks),
      tiles ? fmt::format("\"fed_flops\":{:.4g},", Median(fed)) : "", Median(streams));
  return 0;
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) { return forebay::bench::Main(argc, argv); }
