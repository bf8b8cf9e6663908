// What a job takes in a layout, before anything is made.
#pragma once

#include <span>

#include "layout/layout_plan.h"
#include "layout/step_price.h"

namespace forebay::layout {

// What the ranks of a stage pull in a step, over the busiest link. `pools`: of the replicas of one
// rank; empty: nothing. `stages`: of so many stages of a pipeline, which pull about as much each: a
// step that passes them all needs it of all.
StepPulls PullsOf(const StepPricer& pricer, const MachinePlan& machine,
                  std::span<const share::PoolPlan> pools, int stages = 1);

// REQUIRES: options.job; the plan fits, and pricer is of its ranks.
JobForecast ForecastOf(const EngineOptions& options, const model::ModelConfig& config,
                       const LayoutPlan& plan, const StepPricer& pricer);

}  // namespace forebay::layout
