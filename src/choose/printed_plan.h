// Plans of policies whose choices grow without memory (schedule::Policy::growth_is_free). Pure, as
// Decide is.
#pragma once

#include "choose/decide.h"

namespace forebay::choose {

inline constexpr base::ErrorCode kNotOfAMachine{"policy_not_of_a_machine"};

// The plan of the one simulated device with memory for all choices at full length, and in
// `prompt_blocks` what there is in truth: so much the policy gives to prompts. Errors are those of
// DecideLayout, and kNotOfAMachine on real devices, on several, and with memory below the device.
base::Result<Decision> DecideFreeGrowth(const layout::EngineOptions& options,
                                        const model::ModelConfig& config);

}  // namespace forebay::choose
