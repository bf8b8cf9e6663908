// What a device can do, as numbers with their sources: peaks, memory, links, overheads and tables
// of measured kernels. docs/profiles.md describes the JSON form. A plain value: copy it, change it,
// price with it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cost/operation.h"
#include "cost/utilisation_table.h"

namespace forebay::cost {

inline constexpr base::ErrorCode kProfileUnknown{"profile_unknown"};
inline constexpr base::ErrorCode kProfileInvalid{"profile_invalid"};

enum class DeviceKind : uint8_t { kGpu, kCpu };

struct Provenance {
  std::string key;
  Mark mark;
  std::string source;
};

struct DeviceProfile {
  std::string name;
  std::string description;
  DeviceKind kind = DeviceKind::kGpu;

  // Dense peaks, multiply and add counted as 2. 0: none; such a format is computed at the bf16
  // peak.
  double bf16_flops = 0;
  double f32_flops = 0;
  double fp8_flops = 0;
  double fp4_flops = 0;
  double int8_flops = 0;
  double memory_bytes = 0;
  double memory_bytes_per_s = 0;
  double link_bytes_per_s = 0;  // to peers, a direction; 0: none, copies take the host's link
  double host_bytes_per_s = 0;  // a direction; 0: the host's memory is the device's
  // The machine's disk, past its page cache, a few requests at once; 0: kUsualDiskRate.
  double disk_read_bytes_per_s = 0;
  double disk_write_bytes_per_s = 0;
  double tdp_w = 0;
  double cores = 0;  // cpu alone
  // cpu alone: a linear of few rows takes as long as of the next multiple of columns
  double column_grain = 0;
  double copy_bytes_per_core_s = 0;  // cpu alone: what one core copies
  // cpu alone: what all cores read at once, where the profile is of some; 0: of all
  double machine_bytes_per_s = 0;

  // What holds where no table does.
  double mfu = 0;
  double mbu = 0;
  double op_floor_s = 0;
  double decode_floor_s = 0;
  double link_efficiency = 0;
  double link_latency_s = 0;

  double launch_s = 0;             // added to every operation
  double step_overhead_s = 0;      // host time of a step
  double sequence_overhead_s = 0;  // and of each of its sequences
  double runtime_bytes = 0;        // memory that no plan may use
  // extra time of compute-bound work beside copies that fill the link: 0.2 is 20 %
  double frequency_loss = 0;

  std::vector<Provenance> provenance;  // where each number is from, in the file's order
  std::vector<UtilisationTable> tables;

  double Peak(NumberFormat format) const;
  // nullptr: not measured. Attention: the table of the nearest head size.
  const UtilisationTable* Find(TableOp op, NumberFormat format,
                               double head_dim = kUsualHeadDim) const;
};

// How a file names a number, and what it may be.
struct NumberRule {
  std::string_view key;
  double DeviceProfile::*member;
  double least;
  double most;
  bool required;
};
std::span<const NumberRule> NumberRules();

// A built-in profile by name ("h200"), or a file by path (with a '/' or ending in ".json"). Numbers
// of one's own may follow ("h200:link_bytes_per_s=5e10"): tables are scaled to them.
// Errors name the file, the key, what was found and what was expected.
base::Result<DeviceProfile> LoadProfile(const std::string& name_or_path);

// The file among these; "": a built-in profile is named.
std::string ProfileFile(const std::string& name_or_path);

// `file` is what errors name.
base::Result<DeviceProfile> ParseProfile(std::string_view json, std::string_view file);

// The built-in profiles' names, sorted.
std::vector<std::string_view> ProfileNames();

}  // namespace forebay::cost
