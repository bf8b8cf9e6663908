// The devices that a job runs on, real or simulated, and what each has to give. Pure, but for
// reading what machine this is; engine/backend/ makes them.
#pragma once

#include "cost/profile.h"
#include "kernels/kernel_set.h"
#include "layout/devices.h"
#include "layout/options.h"
#include "model/config.h"
#include "runtime/topology.h"

namespace forebay::layout {

// One rank's device before it is made: what a plan of its memory needs to know.
struct MachinePlan {
  DevicesSpec spec;
  // Prices of operations and copies: the simulated device's own; for a real CPU those of
  // --device-profile, else of the nearest built-in one.
  cost::DeviceProfile profile;
  // Modes and forecasts follow from these prices; where they do not, auto's threshold is a
  // constant.
  bool prices_modes = false;
  bool has_data = true;        // operations compute; else the device knows shapes alone
  uint64_t slice_bytes = 0;    // a pull's, where nobody says
  runtime::Topology topology;  // real ones alone
  uint64_t budget_bytes = 0;   // a rank's
  uint64_t device_bytes = 0;   // the device's own part: workers' scratch, GPU runtime
  uint64_t stable_bytes = 0;   // MemoryRequest::stable_bytes
  uint64_t scratch_bytes = 0;  // a worker's
  int workers = 1;             // a rank's
  int32_t max_num_seqs = 0, max_num_batched_tokens = 0;  // with the device's defaults
};
base::Result<MachinePlan> PlanMachine(const EngineOptions& options,
                                      const model::ModelConfig& config,
                                      const kernels::KernelSet& kernels);

}  // namespace forebay::layout
