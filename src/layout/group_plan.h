// Whether the replicas of a group can take steps together, and what they ship then. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "layout/group_options.h"
#include "layout/machine.h"
#include "layout/memory_plan.h"
#include "layout/options.h"

namespace forebay::layout {

// What the options come to for a group whose weights are pooled. `ranks`: of a replica; their pools
// get their ShipPlan. Nothing: replicas only pull, because the mode says so, or in mode auto
// because the layout cannot ship. A threshold that the options leave open is 0. Errors:
// share::kCannotShip.
base::Result<std::optional<GroupOptions>> PlanGroup(const EngineOptions& options,
                                                    const MachinePlan& machine,
                                                    std::vector<MemoryRequest>* ranks);

// LayoutPlan::routed_rows as the options say it, of ranks with such pools; nothing: they leave it
// open.
std::optional<int64_t> AskedRoutedRows(const EngineOptions& options,
                                       std::span<const share::PoolPlan> pools);

}  // namespace forebay::layout
