#include "profile/profile_device.h"

#include <algorithm>
#include <cmath>

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
                                                const ProfileOptions& options, std::string name,
                                                const ProgressFn& progress) {
  cost::DeviceProfile profile;
  profile.name = std::move(name);
  FB_ASSIGN_OR_RETURN(const auto subject, MakeSubject(options));
  {
    FB_ASSIGN_OR_RETURN(const auto bench, Bench::Create(runtime, *subject));
    subject->MeasurePeaks(*bench, &profile);
    progress(fmt::format("peaks: {:.0f} GFLOP/s in bf16, {:.0f} in fp32, {:.1f} GB/s read",
                         profile.bf16_flops / 1e9, profile.f32_flops / 1e9,
                         profile.memory_bytes_per_s / 1e9));
    SetNumber(&profile, "launch_s", 0, cost::Mark::kDerived, "part of every measured time");
    MeasureLinears(*bench, progress, &profile);
    MeasureExperts(*bench, progress, &profile);
    MeasureAttention(*bench, progress, &profile);
    MeasureRows(*bench, progress, &profile);
    subject->MeasureCopies(*bench, progress, &profile);
    const base::Status disk = MeasureDisk(*bench, "forebay-profile.disk", &profile);
    progress(disk.ok() ? fmt::format("disk: {:.2f} GB/s read, {:.2f} written",
                                     profile.disk_read_bytes_per_s / 1e9,
                                     profile.disk_write_bytes_per_s / 1e9)
                       : fmt::format("the disk is not in the profile: {}", disk.ToString()));
    FB_RETURN_IF_ERROR(bench->fault());
  }
  FB_RETURN_IF_ERROR(subject->MeasureRest(runtime, &profile));
  FB_RETURN_IF_ERROR(MeasureStepOverhead(*subject, runtime, &profile));
  progress(fmt::format("a step beside its operations: {:.0f} us, and {:.2f} us a sequence",
                       profile.step_overhead_s * 1e6, profile.sequence_overhead_s * 1e6));
  SetDefaults(&profile);
  return profile;
}

}  // namespace forebay::profile
