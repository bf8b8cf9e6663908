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

// The prices of what is pulled, where a replica of `context` hands a choice over to one of
// `generation`; the others are 0. Ranks of unlike cuts pull a block in many parts.
schedule::StealPrices PriceHandOver(const layout::EngineOptions& options,
                                    const layout::LayoutPlan& context,
                                    const layout::LayoutPlan& generation);

}  // namespace forebay::price
