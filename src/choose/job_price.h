// What a job takes in a layout, before anything is made.
#pragma once

#include "choose/job_forecast.h"
#include "layout/layout_plan.h"
#include "price/step_price.h"

namespace forebay::choose {

// A forecast that comes to no less than `most` is stopped there. REQUIRES: options.job; the plan
// fits, and pricer is of its ranks.
JobForecast ForecastOf(const layout::EngineOptions& options, const model::ModelConfig& config,
                       const layout::LayoutPlan& plan, const price::StepPricer& pricer,
                       const JobCost& most = {});

}  // namespace forebay::choose
