// What parking a preempted choice below the device costs and saves, by the prices of the devices.
#pragma once

#include "layout/layout_plan.h"
#include "schedule/park.h"

namespace forebay::layout {

// Prices of 0 where the plan has no tier, or nothing is to be parked.
schedule::ParkPrices PriceParking(const EngineOptions& options, const LayoutPlan& plan);

}  // namespace forebay::layout
