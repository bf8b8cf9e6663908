#include "profile/profile_device.h"

#include <algorithm>
#include <cmath>

#include "kernels/packed_weight.h"
#include "runtime/topology.h"

namespace forebay::profile {
namespace {

// Utilisation at the last point of a table whose other axes are at theirs.
double LastUtilisation(const cost::UtilisationTable& table, const cost::DeviceProfile& profile,
                       double rows) {
  const cost::Point point{rows, table.axes[1].back(), table.axes[2].back()};
  const double work = point[0] * point[1] * point[2];
  const double roofline =
      std::max(2 * work / profile.bf16_flops, 2 * work / rows / profile.memory_bytes_per_s);
  return std::clamp(roofline / table.Lookup(point).seconds, 0.001, 1.0);
}

// What holds where a table does not: read off the tables.
void SetDefaults(cost::DeviceProfile* profile) {
  constexpr cost::Mark kDerived = cost::Mark::kDerived;
  const auto& linear = *profile->Find(cost::TableOp::kLinear, cost::NumberFormat::kBF16);
  SetNumber(profile, "mfu", LastUtilisation(linear, *profile, linear.axes[0].back()), kDerived,
            "the table's largest linear");
  SetNumber(profile, "mbu", LastUtilisation(linear, *profile, 1), kDerived,
            "the table's largest linear with one row");
  const auto fastest = [&](cost::TableOp op) {
    return profile->Find(op, cost::NumberFormat::kBF16)->floor_seconds;
  };
  SetNumber(profile, "op_floor_s", fastest(cost::TableOp::kNorm), kDerived, "the fastest norm");
  SetNumber(profile, "decode_floor_s", fastest(cost::TableOp::kDecodeAttention), kDerived,
            "the fastest decode attention");
}

}  // namespace

void SetNumber(cost::DeviceProfile* profile, std::string_view key, double value, cost::Mark mark,
               std::string source) {
  const auto rule = std::ranges::find(cost::NumberRules(), key, &cost::NumberRule::key);
  profile->*rule->member = std::clamp(value, rule->least, rule->most);
  std::erase_if(profile->provenance,
                [&](const cost::Provenance& entry) { return entry.key == key; });
  profile->provenance.push_back({std::string(key), mark, std::move(source)});
}

base::Result<cost::DeviceProfile> ProfileDevice(runtime::Runtime& runtime,
                                                const BenchOptions& options, std::string name,
                                                const ProgressFn& progress) {
  cost::DeviceProfile profile;
  {
    FB_ASSIGN_OR_RETURN(const auto bench, Bench::Create(runtime, options));
    const int workers = bench->device().num_workers();
    const runtime::Topology topology = runtime::ReadTopology();
    profile.name = std::move(name);
    profile.description =
        fmt::format("{}, {} threads, {}", runtime::CpuName(), workers, bench->kernels().name);
    profile.kind = cost::DeviceKind::kCpu;
    MeasurePeaks(*bench, &profile);
    progress(fmt::format("peaks: {:.0f} GFLOP/s in bf16, {:.0f} in fp32, {:.1f} GB/s read",
                         profile.bf16_flops / 1e9, profile.f32_flops / 1e9,
                         profile.memory_bytes_per_s / 1e9));
    SetNumber(&profile, "memory_bytes", static_cast<double>(topology.total_memory),
              cost::Mark::kMeasured, "the machine's memory");
    SetNumber(&profile, "cores", workers, cost::Mark::kMeasured, "worker threads");
    SetNumber(&profile, "column_grain", kernels::kPanelColumns * workers, cost::Mark::kDerived,
              "a panel a worker");
    SetNumber(&profile, "launch_s", 0, cost::Mark::kDerived, "part of every measured time");
    MeasureLinears(*bench, progress, &profile);
    MeasureExperts(*bench, progress, &profile);
    MeasureAttention(*bench, progress, &profile);
    MeasureRows(*bench, progress, &profile);
    MeasureCopies(*bench, &profile);
    progress("copies by size and by how many run at once");
    const base::Status disk = MeasureDisk(*bench, "forebay-profile.disk", &profile);
    progress(disk.ok() ? fmt::format("disk: {:.2f} GB/s read, {:.2f} written",
                                     profile.disk_read_bytes_per_s / 1e9,
                                     profile.disk_write_bytes_per_s / 1e9)
                       : fmt::format("the disk is not in the profile: {}", disk.ToString()));
  }
  FB_RETURN_IF_ERROR(MeasureMachine(runtime, options, &profile));
  FB_RETURN_IF_ERROR(MeasureStepOverhead(options, runtime, &profile));
  progress("what a step takes beside its operations");
  SetDefaults(&profile);
  SetNumber(&profile, "runtime_bytes", 0.3e9, cost::Mark::kUncalibrated,
            "process, threads, tokenizer");
  SetNumber(&profile, "frequency_loss", 0.05, cost::Mark::kUncalibrated,
            "copies and arithmetic share the power budget; a guess");
  return profile;
}

}  // namespace forebay::profile
