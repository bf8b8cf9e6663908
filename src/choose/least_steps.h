// How few steps a job could take, however it is scheduled. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "layout/options.h"
#include "schedule/limits.h"

namespace forebay::choose {

// Steps of all replicas together, each within `limits`, that these choices take at least: as many
// as the longest has, as their rows fill, as the choices of a step allow, and as their KV cache
// takes while they stay (total_blocks of 0: any; shared tokens count for nobody). Those that are
// longer than `max_model_len` do not run.
int64_t LeastSteps(std::span<const layout::ChoiceShape> job, const schedule::Limits& limits,
                   int64_t max_model_len);

}  // namespace forebay::choose
