#include <algorithm>

#include "base/units.h"
#include "kernels/cpu/probes.h"
#include "kernels/packed_weight.h"
#include "profile/cases.h"
#include "profile/measure_table.h"
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

double ReadRate(Bench& bench) {
  constexpr int64_t kBytes = 256 << 20;
  const auto run = [&](device::Stream& stream, int64_t i) {
    const std::byte* from = bench.data().data + i % 2 * kBytes;
    stream.Enqueue(device::MakeOperation<&RunRead>({.label = "read"}, ReadArgs{from, kBytes}));
  };
  return static_cast<double>(kBytes) / bench.SecondsOf(run);
}

// The cores at hand. Arithmetic from registers and reads of memory are of all workers at once.
class CpuSubject final : public Subject {
 public:
  CpuSubject(const ProfileOptions& options, const kernels::KernelSet& kernels)
      : Subject(options, kernels, CpuGrid(options.quick)) {}

  bool on_cores() const override { return true; }

  base::Result<std::unique_ptr<device::Device>> MakeDevice(runtime::Runtime& runtime,
                                                           uint64_t bytes) const override {
    const int threads = options().threads;
    if (threads < 0) {
      return base::Status(base::kInvalidArgument,
                          fmt::format("--threads is {}; expected at least 0", threads));
    }
    const runtime::Topology topology = runtime::ReadTopology();
    device::CpuDeviceOptions device;
    device.num_workers = threads ? threads : topology.usable_cores;
    if (device.num_workers <= static_cast<int>(topology.cores.size()))
      device.cores.assign(topology.cores.begin(), topology.cores.begin() + device.num_workers);
    device.scratch_bytes = kScratchBytes;
    device.memory_bytes = bytes + static_cast<uint64_t>(device.num_workers) * kScratchBytes;
    return device::CreateCpuDevice(runtime, device);
  }

  void MeasurePeaks(Bench& bench, cost::DeviceProfile* profile) const override {
    const int workers = bench.device().num_workers();
    profile->kind = cost::DeviceKind::kCpu;
    profile->description =
        fmt::format("{}, {} threads, {}", runtime::CpuName(), workers, kernels().name);
    const kernels::Isa isa = kernels().isa;
    const kernels::PeakProbe& fma = kernels::FmaProbeOf(isa);
    const char* product = isa == kernels::Isa::kAmx          ? "tdpbf16ps from registers"
                          : isa == kernels::Isa::kAvx512bf16 ? "vdpbf16ps from registers"
                                                             : "fp32 FMA from registers";
    const auto source = [&](const char* what) {
      return fmt::format("{}, {} threads", what, workers);
    };
    SetNumber(profile, "bf16_flops", Peak(bench, kernels::ProbeOf(isa)), kMeasured,
              source(product));
    if (const kernels::PeakProbe* const int8 = kernels::Int8ProbeOf(isa)) {
      SetNumber(profile, "int8_flops", Peak(bench, *int8), kMeasured,
                source("vpdpbusd from registers"));
    }
    SetNumber(profile, "f32_flops", Peak(bench, fma), kMeasured, source("fp32 FMA from registers"));
    SetNumber(profile, "memory_bytes_per_s", ReadRate(bench), kMeasured,
              source("256 MiB read once"));
    SetNumber(profile, "memory_bytes", static_cast<double>(runtime::ReadTopology().total_memory),
              kMeasured, "the machine's memory");
    SetNumber(profile, "cores", workers, kMeasured, "worker threads");
    SetNumber(profile, "column_grain", kernels::kPanelColumns * workers, cost::Mark::kDerived,
              "a panel a worker");
  }

  void MeasureCopies(Bench& bench, const ProgressFn& progress,
                     cost::DeviceProfile* profile) const override {
    constexpr CopyPath kPaths[] = {
        {device::CopyKind::kWeights}, {device::CopyKind::kKvUp}, {device::CopyKind::kKvDown}};
    const auto seconds = [&](double bytes, double streams) {
      return bench.CopySeconds(std::span(kPaths).first(static_cast<size_t>(streams)),
                               static_cast<int64_t>(bytes));
    };
    const TableGrid& copies = grid().copies;
    const double few = copies.axes[0].front(), many = copies.axes[0].back();
    const double small = seconds(few, 1), large = seconds(many, 1);
    const double rate = (many - few) / std::max(large - small, 1e-9);
    SetNumber(profile, "copy_bytes_per_core_s", rate, kMeasured,
              "copies of 16 MiB on one copy stream");
    SetNumber(profile, "link_bytes_per_s", rate, kMeasured,
              "a copy stream; between ranks of a CPU there is no other link");
    SetNumber(profile, "link_efficiency", 1, cost::Mark::kDerived,
              "the link is measured as it is used");
    SetNumber(profile, "link_latency_s", std::max(small - few / rate, 0.0), kMeasured,
              "copies of 4 KiB on one copy stream");
    TableSpec spec;
    spec.op = cost::TableOp::kCopy;
    spec.axes = copies.axes;
    spec.grain = {64, 0, 0};
    spec.seconds = [&](const cost::Point& point) { return seconds(point[0], point[1]); };
    profile->tables.push_back(MeasureTable(spec, copies.held_out));
    progress("copies by size and by how many run at once");
  }

  base::Status MeasureRest(runtime::Runtime& runtime, cost::DeviceProfile* profile) const override {
    SetNumber(profile, "runtime_bytes", 0.3e9, cost::Mark::kUncalibrated,
              "process, threads, tokenizer");
    SetNumber(profile, "frequency_loss", 0.05, cost::Mark::kUncalibrated,
              "copies and arithmetic share the power budget; a guess");
    // What all usable cores read at once, where the profile is of some of them.
    const int cores = runtime::ReadTopology().usable_cores;
    if (cores <= profile->cores) return base::Status::Ok();
    ProfileOptions all = options();
    all.threads = cores;
    FB_ASSIGN_OR_RETURN(const auto machine, MakeSubject(all));
    FB_ASSIGN_OR_RETURN(const auto bench, Bench::Create(runtime, *machine));
    SetNumber(profile, "machine_bytes_per_s", ReadRate(*bench), kMeasured,
              fmt::format("256 MiB read once, {} threads", cores));
    return base::Status::Ok();
  }

 private:
  static constexpr cost::Mark kMeasured = cost::Mark::kMeasured;
  // rows of 4096 values that experts pack
  static constexpr uint64_t kScratchBytes = 5 * base::kMiB;
};

}  // namespace

std::unique_ptr<Subject> MakeCpuSubject(const ProfileOptions& options,
                                        const kernels::KernelSet& kernels) {
  return std::make_unique<CpuSubject>(options, kernels);
}

}  // namespace forebay::profile
