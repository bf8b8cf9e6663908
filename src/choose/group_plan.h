// Whether and when the replicas of a group take steps together. Pure.
#pragma once

#include <optional>
#include <vector>

#include "layout/group_options.h"
#include "layout/machine.h"
#include "layout/memory_plan.h"
#include "layout/options.h"
#include "price/mode_price.h"

namespace forebay::choose {

// What the options come to for a group whose weights are pooled. `ranks`: of a replica; their pools
// get their ShipPlan. Nothing: replicas only pull, because the mode says so, or in mode auto
// because the layout cannot ship. `pricer` prices a step of a rank (null: the threshold is not
// asked for, or nothing says what steps take). Errors: share::kCannotShip.
base::Result<std::optional<layout::GroupOptions>> PlanGroup(
    const layout::EngineOptions& options, const layout::MachinePlan& machine,
    const price::StepPricer* pricer, const price::RoutedExperts& experts,
    std::vector<layout::MemoryRequest>* ranks);

// Most rows of a step of a replica's own to which those experts come that have rows, rather than
// all; 0: none is such. By price, where `pricer` is there.
int64_t PlanRouted(const layout::EngineOptions& options, const layout::MachinePlan& machine,
                   const price::StepPricer* pricer, const price::RoutedExperts& experts,
                   const std::vector<layout::MemoryRequest>& ranks);

}  // namespace forebay::choose
