// Which devices a job runs on, as a user names them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace forebay::layout {

inline constexpr base::ErrorCode kDevicesInvalid{"devices_invalid"};

class Platform;
// The CPU's cores, GPUs, and devices that know shapes alone and run in virtual time.
const Platform& CpuPlatform();
const Platform& CudaPlatform();
const Platform& SimulatedPlatform();

// "cpu", "2xcpu", "cuda", "4xcuda", "cuda:0,2", "2xcuda:0" (two ranks on one GPU), "sim:h200",
// "sim:8xh200", "sim:8xpath/to/profile.json".
struct DevicesSpec {
  const Platform* platform = &CpuPlatform();  // Never null.
  int count = 1;
  std::string name = "cpu";   // Or the profile of simulated ones.
  std::vector<int> ordinals;  // The GPU of each rank; others have none.
  std::string text = "cpu";   // As it was given.
};
base::Result<DevicesSpec> ParseDevices(std::string_view text);
// kDevicesInvalid where they are real.
base::Status RequireSimulated(const DevicesSpec& devices);

}  // namespace forebay::layout
