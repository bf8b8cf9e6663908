// What one of a replica's steps may plan with, where several are in flight and KV is lent. Pure:
// the policy then plans within the share as if it were all there is.
#pragma once

#include <cstdint>

#include "schedule/limits.h"

namespace forebay::schedule {

// What a replica holds when it plans a step.
struct ShareView {
  int64_t running = 0, waiting = 0;  // choices
  int64_t in_flight = 0;             // running ones that steps in flight have: not to be planned
  // Open loans: each takes a place, and together they take lent_blocks.
  int64_t loans = 0, lent_blocks = 0;
  int64_t steps = 1;  // that the choices are shared out among; 1: the step may have all
};

struct StepShare {
  int64_t running = 0;  // running choices of the step, among those that are not in flight
  Limits limits;        // for these choices and those that the step admits
};

// Steps in flight share the choices evenly: each reads the weights once, so that one with few rows
// costs as much as one with many. Of the places the step has what the other running choices and
// the loans leave, but no more than its even share of all that runs and waits; of the blocks, all
// but the lent ones.
StepShare ShareOf(const Limits& limits, const ShareView& view);

}  // namespace forebay::schedule
