// Makes the devices that a machine's plan describes.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "device/sim/event_engine.h"
#include "layout/job_groups.h"
#include "layout/machine.h"

namespace forebay::engine {

struct Machine {
  std::unique_ptr<device::EventEngine> sim;  // null: real devices. Outlives them
  std::vector<std::vector<std::unique_ptr<device::Device>>> groups;  // by rank
};
// Devices are numbered within their group. REQUIRES: for simulated devices `runtime` is a
// VirtualRuntime.
base::Result<Machine> BuildMachine(const layout::MachinePlan& plan,
                                   const layout::EngineOptions& options,
                                   std::span<const layout::JobGroup> groups,
                                   runtime::Runtime& runtime);

}  // namespace forebay::engine
