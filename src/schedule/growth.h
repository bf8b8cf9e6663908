// How many choices the KV cache holds until they end, as far as their lengths are foreseen. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/plan.h"

namespace forebay::schedule {

// How many waiting choices, from the first on, can be admitted beside the running ones so that the
// blocks of all never exceed `capacity` times the cache. Each choice grows by a token a step until
// its expected end and then frees its blocks, so the largest need is at one of the ends.
int64_t ChoicesThatFit(const StepView& view, double capacity);

// Foreseen needs may fill so much of the cache: rows that are computed again ride along with steps
// that memory bounds, so that a fuller cache pays (bench/results/offload.md). From 1.25 on jobs on
// cards take the same time to .2 %, whatever preemption costs there (bench/results/vasuki.md).
inline constexpr double kFill = 1.5;

// The same where later ones overtake, as a packer that places each where it first fits: writes for
// each waiting choice whether it fits now. The first that does not keeps its place at the end of
// another choice, and no later one takes that.
void ChoicesThatFitFirst(const StepView& view, double capacity, std::vector<bool>* fit);

}  // namespace forebay::schedule
