// How many choices the KV cache holds until they end, as far as their lengths are foreseen. Pure.
#pragma once

#include <cstdint>

#include "schedule/plan.h"

namespace forebay::schedule {

// How many waiting choices, from the first on, can be admitted beside the running ones so that the
// blocks of all never exceed `capacity` times the cache. Each choice grows by a token a step until
// its expected end and then frees its blocks, so the largest need is at one of the ends.
int64_t ChoicesThatFit(const StepView& view, double capacity);

}  // namespace forebay::schedule
