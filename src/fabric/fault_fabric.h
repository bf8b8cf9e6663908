// A trial of faults: at a chosen transfer the stream of one rank dies, as that of a broken device
// does.
#pragma once

#include <memory>

#include "fabric/fabric.h"

namespace forebay::fabric {

inline constexpr base::ErrorCode kPlantedFault{"planted_fault"};

struct FaultPlan {
  int rank = -1;        // among all ranks of the job; -1: none
  int64_t at_pull = 0;  // its first such call is 1; 0: none
  int64_t at_post = 0;
};

// `fabric`, whose rank has the fault; `dead` is a counter for its streams alone.
std::unique_ptr<Fabric> PlantFault(std::unique_ptr<Fabric> fabric,
                                   std::unique_ptr<device::Counter> dead, const FaultPlan& plan);

}  // namespace forebay::fabric
