// What pool=auto need not know and who plans may want to: the numbers of pooled layers that it did
// not try. Pure, as PlanLayout is.
#pragma once

#include <functional>

#include "layout/layout_plan.h"

namespace forebay::layout {

// The choice of `plan`, which PlanLayout made of these options, with all numbers of layers tried,
// while `go_on` says so: asked before each. Where nothing is known of the job the rest is priced by
// the steady state that chose. REQUIRES: plan.choice.
PoolChoice TryEveryCount(const EngineOptions& options, const model::ModelConfig& config,
                         const LayoutPlan& plan, const std::function<bool()>& go_on);

}  // namespace forebay::layout
