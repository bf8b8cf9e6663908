// What an engine's options come to before anything is made: its devices, their layout, what is pooled, and how the memory of
// a rank is divided. The one function for it: the engine, `forebay plan` and the scenarios share it, so that arenas really
// have the sizes that a plan shows. Pure, but for reading what machine this is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/group_control.h"
#include "engine/layout.h"
#include "engine/machine.h"
#include "engine/memory_plan.h"
#include "engine/options.h"
#include "engine/pool_choice.h"

namespace forebay::engine {

// Of one rank of a replica.
struct RankPlan {
  MemoryRequest request;  // with the pools of its peers, by replica
  MemoryPlan memory;
};

struct LayoutPlan {
  tensor::DType dtype = tensor::DType::kBF16;
  const kernels::KernelSet* kernels = nullptr;
  MachinePlan machine;
  Layout layout;                       // pool_layers is set where weights are pooled
  int32_t steps_in_flight = 1;         // of a replica
  // Of pool=auto: at this mean context, by the prices of this device.
  std::optional<PoolChoice> choice;
  int64_t mean_context = 0;
  std::string priced_by;
  std::vector<RankPlan> ranks;         // of a replica, stage by stage; replicas are alike
  std::optional<GroupOptions> group;   // of a group whose replicas may ship; nothing: they only pull

  int replicas() const { return layout.groups * layout.dp; }
  // kMemoryTooSmall: which part is how large, and what would fit.
  base::Status Fits() const;
};

// Errors are those of the options (their value, the devices, the layout, what the model cannot do), not of the memory.
base::Result<LayoutPlan> PlanLayout(const EngineOptions& options, const model::ModelConfig& config);

// Prices of the devices; a real CPU is priced as the built-in profile of one.
base::Result<cost::DeviceProfile> PriceProfile(const MachinePlan& machine);

// What pool=auto came to, beside no pool and all layers. REQUIRES: plan.choice.
std::string FormatChoice(const LayoutPlan& plan);

}  // namespace forebay::engine
