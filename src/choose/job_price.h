// What a job takes in a layout, before anything is made.
#pragma once

#include <memory>

#include "choose/job_forecast.h"
#include "layout/layout_plan.h"
#include "price/step_price.h"

namespace forebay::choose {

// Prices of steps of the draft's ranks in its layout's own mode. The draft outlives them, and so
// does `prices`, which may be null: what other pricers have priced.
std::unique_ptr<price::StepPricer> PricerOf(const layout::EngineOptions& options,
                                            const layout::LayoutDraft& draft,
                                            price::SharedPrices* prices = nullptr);

// A forecast that comes to no less than `most` is stopped there. REQUIRES: options.job; the plan
// fits, and pricer is of its ranks.
JobForecast ForecastOf(const layout::EngineOptions& options, const model::ModelConfig& config,
                       const layout::LayoutPlan& plan, const price::StepPricer& pricer,
                       const JobCost& most = {});

// The same of two roles, of which one computes prompts and the other goes on. REQUIRES:
// options.job; both plans fit, have one max_model_len and share no weights. `prices`: as PricerOf
// has it.
JobForecast ForecastOfRoles(const layout::EngineOptions& options, const model::ModelConfig& config,
                            const layout::LayoutPlan& context, const layout::LayoutPlan& generation,
                            const JobCost& most = {}, price::SharedPrices* prices = nullptr);

}  // namespace forebay::choose
