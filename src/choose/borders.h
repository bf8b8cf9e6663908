// From which rows on the steps of a group pull, ship or route, where the options leave it open.
// Pure.
#pragma once

#include "layout/layout_plan.h"
#include "price/step_price.h"

namespace forebay::choose {

// Sets plan->group's threshold with what goes with it, and plan->routed_rows: by `pricer`, which is
// of the plan's ranks, or by constants where that is null. What the options say stays.
void SetBorders(const layout::EngineOptions& options, const price::StepPricer* pricer,
                layout::LayoutPlan* plan);

}  // namespace forebay::choose
