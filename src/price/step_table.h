// The prices of steps by which a policy bounds them.
#pragma once

#include "layout/layout_plan.h"
#include "schedule/step_prices.h"

namespace forebay::price {

// Of steps of the plan's replicas, each in the mode that a step of so many rows takes. What the
// layout pools is pulled where a step is in the layout's own mode.
schedule::StepPrices PriceSteps(const layout::EngineOptions& options,
                                const layout::LayoutPlan& plan);

}  // namespace forebay::price
