// Plans of policies whose choices grow without memory (schedule::Policy::growth_is_free). Pure, as
// PlanLayout is.
#pragma once

#include "layout/layout_plan.h"

namespace forebay::layout {

inline constexpr base::ErrorCode kNotOfAMachine{"policy_not_of_a_machine"};

// The plan of the one simulated device with memory for all choices at full length, and in
// `prompt_blocks` what there is in truth: so much the policy gives to prompts. Errors are those of
// PlanJob, and kNotOfAMachine on real devices, on several, and with memory below the device.
base::Result<LayoutPlan> PlanFreeGrowth(const EngineOptions& options,
                                        const model::ModelConfig& config);

}  // namespace forebay::layout
