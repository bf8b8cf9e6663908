// What it costs and saves to put KV below the device, by the prices of the devices.
#pragma once

#include "layout/layout_plan.h"
#include "schedule/park.h"

namespace forebay::price {

// Prices of 0 where the plan has no tier.
schedule::ParkPrices PriceParking(const layout::EngineOptions& options,
                                  const layout::LayoutPlan& plan);

}  // namespace forebay::price
