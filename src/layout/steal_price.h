// What stealing a running choice costs and saves, by the prices of the devices.
#pragma once

#include <optional>

#include "layout/layout_plan.h"
#include "schedule/steal.h"

namespace forebay::layout {

// What stealing costs a replica of the plan; nothing: none steals.
std::optional<schedule::StealPrices> PriceStealing(const EngineOptions& options,
                                                   const LayoutPlan& plan);

}  // namespace forebay::layout
