// What pool=auto need not know and who plans may want to: the numbers of pooled layers that it did
// not try. Pure, as Decide is.
#pragma once

#include <functional>

#include "choose/decide.h"

namespace forebay::choose {

// The choice of `plan`, which Decide made of these options, with all numbers of layers tried,
// while `go_on` says so: asked before each. Where nothing is known of the job the rest is priced by
// the steady state that chose. REQUIRES: plan.choice.
PoolChoice TryEveryCount(const layout::EngineOptions& options, const model::ModelConfig& config,
                         const Decision& plan, const std::function<bool()>& go_on);

}  // namespace forebay::choose
