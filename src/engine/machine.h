// The devices that a job runs on, real or simulated, and what each has to give.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cost/profile.h"
#include "device/device.h"
#include "device/sim/event_engine.h"
#include "engine/options.h"
#include "kernels/kernel_set.h"
#include "model/config.h"
#include "runtime/topology.h"

namespace forebay::engine {

inline constexpr base::ErrorCode kDevicesInvalid{"devices_invalid"};

// `--devices`: "cpu", "2xcpu", "sim:h200", "sim:8xh200", "sim:8xpath/to/profile.json".
struct DevicesSpec {
  bool simulated = false;
  int count = 1;
  std::string name;  // "cpu", or the profile
};
base::Result<DevicesSpec> ParseDevices(std::string_view text);

// One rank's device before it is made: what a plan of its memory needs to know.
struct MachinePlan {
  DevicesSpec spec;
  cost::DeviceProfile profile;     // simulated devices alone
  runtime::Topology topology;      // real ones alone
  uint64_t budget_bytes = 0;       // a rank's
  uint64_t device_bytes = 0;       // of it the device's own: workers' scratch, a GPU's runtime
  uint64_t stable_bytes = 0;       // MemoryRequest::stable_bytes
  uint64_t scratch_bytes = 0;      // a worker's
  int workers = 1;                 // a rank's
  int32_t max_num_seqs = 0, max_num_batched_tokens = 0;  // with the device's defaults
};
base::Result<MachinePlan> PlanMachine(const EngineOptions& options, const model::ModelConfig& config, tensor::DType dtype,
                                      const kernels::KernelSet& kernels);

struct Machine {
  std::unique_ptr<device::EventEngine> sim;  // null: real devices. Outlives them
  std::vector<std::unique_ptr<device::Device>> devices;
};
// Devices are numbered within their group. REQUIRES: for simulated devices `runtime` is a VirtualRuntime.
base::Result<Machine> BuildMachine(const MachinePlan& plan, const EngineOptions& options, int ranks_per_group,
                                   runtime::Runtime& runtime);

}  // namespace forebay::engine
