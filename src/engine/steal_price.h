// What stealing a running choice costs and saves, by the prices of the devices.
#pragma once

#include <optional>

#include "engine/layout_plan.h"
#include "schedule/steal.h"

namespace forebay::engine {

// Of a replica of the plan; nothing: replicas do not steal. Errors: kInvalidArgument (EngineOptions::steal), the profile's.
base::Result<std::optional<schedule::StealPrices>> PriceStealing(const EngineOptions& options, const model::ModelConfig& config,
                                                  const LayoutPlan& plan);

}  // namespace forebay::engine
