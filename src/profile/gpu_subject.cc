#include <algorithm>
#include <string>

#include "base/units.h"
#include "cost/model.h"
#include "device/cuda/cuda_device.h"
#include "kernels/cuda/launch/probes.h"
#include "kernels/cuda/launch/trial.h"
#include "kernels/cuda/registry.h"
#include "layout/platform.h"
#include "profile/cases.h"
#include "profile/measure_table.h"

namespace forebay::profile {
namespace {

// Copies within the device beside which work is measured: some milliseconds of them.
constexpr int64_t kBesideBytes = 256 << 20;
constexpr int kBesideCopies = 32;

constexpr CopyPath kWithin{.stream = device::CopyKind::kWeights};
constexpr CopyPath kUp{.stream = device::CopyKind::kKvUp, .from_host = true};
constexpr CopyPath kDown{.stream = device::CopyKind::kKvDown, .to_host = true};

// A number of another profile, with its origin.
void TakeNumber(const cost::DeviceProfile& from, std::string_view key,
                cost::DeviceProfile* profile) {
  const auto entry = std::ranges::find(from.provenance, key, &cost::Provenance::key);
  const auto rule = std::ranges::find(cost::NumberRules(), key, &cost::NumberRule::key);
  if (entry == from.provenance.end()) return;
  SetNumber(profile, key, from.*rule->member, entry->mark,
            fmt::format("{}: {}", from.name, entry->source));
}

// A GPU, alone. What lies between GPUs is the nearest built-in profile's.
class GpuSubject final : public Subject {
 public:
  GpuSubject(const ProfileOptions& options, const kernels::KernelSet& kernels,
             const device::Driver& driver, device::CudaMemory memory, cost::DeviceProfile nearest)
      : Subject(options, kernels, GpuGrid(options.quick)),
        driver_(driver),
        memory_(std::move(memory)),
        nearest_(std::move(nearest)) {}

  bool on_cores() const override { return false; }
  // Stored weights are expanded, and fp32 is for comparisons.
  bool bf16_alone() const override { return true; }

  base::Result<std::unique_ptr<device::Device>> MakeDevice(runtime::Runtime& runtime,
                                                           uint64_t bytes) const override {
    const device::CudaDeviceOptions cuda{.ordinal = options().devices.ordinals.front(),
                                         .memory_bytes = bytes + grid().scratch_bytes,
                                         .scratch_bytes = grid().scratch_bytes,
                                         .kernels = kernels::cuda::Kernels()};
    FB_ASSIGN_OR_RETURN(auto device, device::CreateCudaDevice(runtime, driver_, cuda));
    if (on_tensor_cores()) FB_RETURN_IF_ERROR(kernels::cuda::TryTensorCores(*device));
    return device;
  }

  void MeasurePeaks(Bench& bench, cost::DeviceProfile* profile) const override {
    profile->kind = cost::DeviceKind::kGpu;
    profile->description = fmt::format("{}, class {}", memory_.gpu, kernels().numerics_class);
    const kernels::cuda::FmaProbe fma{
        .blocks = grid().fma_blocks, .rounds = grid().fma_rounds, .sums = bench.output().data};
    const double fma_rate =
        kernels::cuda::FlopsOf(fma) / bench.SecondsOf([&](device::Stream& stream, int64_t) {
          stream.Enqueue(device::MakeOperation({.label = "peak"}, fma, &kernels::cuda::Multiply));
        });
    constexpr const char* kFma = "fp32 FMA from registers";
    SetNumber(profile, "f32_flops", fma_rate, kMeasured, kFma);
    const auto& [rows, n, k] = grid().peak_linear;
    if (on_tensor_cores()) {
      SetNumber(profile, "bf16_flops", 2 * rows * n * k / LinearSeconds(bench, {rows, n, k}),
                kMeasured, fmt::format("a linear layer of {} rows, {} x {}", rows, n, k));
    } else {
      SetNumber(profile, "bf16_flops", fma_rate, kMeasured, kFma);
    }
    const int64_t bytes = grid().read_bytes;
    const double read = bench.SecondsOf([&](device::Stream& stream, int64_t i) {
      const kernels::cuda::ReadProbe probe{
          .data = bench.data().data + i % 2 * bytes, .bytes = bytes, .sums = bench.output().data};
      stream.Enqueue(device::MakeOperation({.label = "read"}, probe, &kernels::cuda::Read));
    });
    SetNumber(profile, "memory_bytes_per_s", static_cast<double>(bytes) / read, kMeasured,
              fmt::format("{} read once", base::FormatBytes(static_cast<uint64_t>(bytes))));
    SetNumber(profile, "memory_bytes", static_cast<double>(memory_.total), kMeasured,
              "the driver's total");
    SetNumber(profile, "runtime_bytes", static_cast<double>(memory_.total - memory_.free),
              kMeasured, "what of it was not free beside a context");
    for (const char* key : {"link_bytes_per_s", "link_efficiency", "link_latency_s", "tdp_w"})
      TakeNumber(nearest_, key, profile);
    for (const cost::UtilisationTable& table : nearest_.tables) {
      if (cost::IsCollective(table.op)) profile->tables.push_back(table);
    }
  }

  void MeasureCopies(Bench& bench, const ProgressFn& progress,
                     cost::DeviceProfile* profile) const override {
    const TableGrid& copies = grid().copies;
    const auto rate = [&](std::span<const CopyPath> paths, double bytes) {
      return bytes / bench.CopySeconds(paths, static_cast<int64_t>(bytes));
    };
    const auto slower = [&](double bytes) {
      return std::min(rate({&kUp, 1}, bytes), rate({&kDown, 1}, bytes));
    };
    const double most = copies.axes[0].back(), host_rate = slower(most);
    SetNumber(profile, "host_bytes_per_s", host_rate / profile->link_efficiency, kMeasured,
              fmt::format("copies of {} from and to pinned memory reach {:.1f} GB/s: that, over "
                          "link_efficiency",
                          base::FormatBytes(static_cast<uint64_t>(most)), host_rate / 1e9));
    TableSpec spec;
    spec.op = cost::TableOp::kCopy;
    spec.axes = copies.axes;
    spec.grain = {64, 0, 0};
    spec.seconds = [&](const cost::Point& point) { return point[0] / slower(point[0]); };
    profile->tables.push_back(MeasureTable(spec, copies.held_out));
    constexpr CopyPath kBothWays[] = {kUp, kDown};
    const double beside_bytes =
        std::min(static_cast<double>(kBesideBytes), static_cast<double>(bench.data().bytes / 2));
    const double within = rate({&kWithin, 1}, beside_bytes);
    progress(fmt::format(
        "copies of {}: {:.1f} GB/s from the host, {:.1f} to it, {:.1f} each way at once; {:.0f} "
        "within the device",
        base::FormatBytes(static_cast<uint64_t>(most)), rate({&kUp, 1}, most) / 1e9,
        rate({&kDown, 1}, most) / 1e9, rate(kBothWays, most) / 1e9, within / 1e9));
    MeasureLoss(bench, within, static_cast<int64_t>(beside_bytes), profile);
    progress(fmt::format("a large linear layer beside such copies: frequency_loss {:.3f}",
                         profile->frequency_loss));
  }

 private:
  static constexpr cost::Mark kMeasured = cost::Mark::kMeasured;

  bool on_tensor_cores() const { return kernels().packed == kernels::PackedForm::kCuda; }

  // Copies within the device, at `rate`, stand for those of peers. They are faster than a link, so
  // a full link costs its part of what they cost.
  void MeasureLoss(Bench& bench, double rate, int64_t bytes, cost::DeviceProfile* profile) const {
    const double alone = LinearSeconds(bench, grid().peak_linear);
    bench.CopyBeside(kWithin, bytes, kBesideCopies);
    const double beside = LinearSeconds(bench, grid().peak_linear);
    bench.CopyBeside(kWithin, bytes, 0);
    const double link = rate / cost::PullRate(*profile);
    SetNumber(profile, "frequency_loss", std::max(beside / alone - 1, 0.0) / link, kMeasured,
              fmt::format("a large linear layer beside copies within the device at {:.0f} GB/s, by "
                          "the part of them that a link carries",
                          rate / 1e9));
  }

  const device::Driver& driver_;
  const device::CudaMemory memory_;
  const cost::DeviceProfile nearest_;
};

}  // namespace

base::Result<std::unique_ptr<Subject>> MakeGpuSubject(const ProfileOptions& options,
                                                      const kernels::KernelSet& kernels) {
  // A rank's plan has the nearest profile, where the machine has such a GPU.
  layout::EngineOptions engine;
  engine.machine.devices = options.devices;
  engine.trial.driver = options.driver;
  layout::MachinePlan plan{.spec = options.devices};
  FB_RETURN_IF_ERROR(options.devices.platform->Plan(engine, kernels, &plan));
  const device::Driver* driver = options.driver;
  if (driver == nullptr) {
    FB_ASSIGN_OR_RETURN(driver, device::OpenDriver());
  }
  FB_ASSIGN_OR_RETURN(device::CudaMemory memory,
                      device::MemoryOfGpu(*driver, options.devices.ordinals.front()));
  return std::unique_ptr<Subject>(std::make_unique<GpuSubject>(
      options, kernels, *driver, std::move(memory), std::move(plan.profile)));
}

}  // namespace forebay::profile
