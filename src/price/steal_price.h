// What stealing a running choice costs and saves, by the prices of the devices.
#pragma once

#include <optional>

#include "layout/layout_plan.h"
#include "price/step_price.h"
#include "schedule/steal.h"

namespace forebay::price {

// What stealing costs a replica of the plan; nothing: none steals.
// `pricer`: of its ranks; null: one is made for it.
std::optional<schedule::StealPrices> PriceStealing(const layout::EngineOptions& options,
                                                   const layout::LayoutPlan& plan,
                                                   const StepPricer* pricer = nullptr);

}  // namespace forebay::price
