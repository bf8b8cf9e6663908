#pragma once

#include <functional>
#include <string>

#include "fabric/fabric.h"

namespace forebay::fabric {

using CounterFactory = std::function<std::unique_ptr<device::Counter>(std::string name)>;

// Ranks of one process, whatever their devices' kind: `new_counter` makes counters for it.
std::vector<std::unique_ptr<Fabric>> CreateInProcessFabric(int num_ranks, const CounterFactory& new_counter);

}  // namespace forebay::fabric
