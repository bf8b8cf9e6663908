// The fabric of simulated devices: the local fabric's slices and orders, over the simulated links.
#pragma once

#include <memory>
#include <vector>

#include "device/sim/event_engine.h"
#include "fabric/fabric.h"

namespace forebay::fabric {

// Pull REQUIRES a simulated device's stream; it keeps the plan's requests in flight. Slices retire
// in their order, so a part's event is reached when all slices up to the part's last one have
// arrived.
std::vector<std::unique_ptr<Fabric>> CreateSimFabric(device::EventEngine& engine, int num_ranks);
// CreatePullFabric's ranks, over the simulated links.
std::vector<std::unique_ptr<Fabric>> CreateSimPullFabric(int num_ranks);

}  // namespace forebay::fabric
