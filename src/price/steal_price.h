// What stealing a running choice costs and saves, by the prices of the devices.
#pragma once

#include <optional>

#include "layout/layout_plan.h"
#include "schedule/steal.h"

namespace forebay::price {

// What stealing costs a replica of the plan; nothing: none steals.
std::optional<schedule::StealPrices> PriceStealing(const layout::EngineOptions& options,
                                                   const layout::LayoutPlan& plan);

}  // namespace forebay::price
