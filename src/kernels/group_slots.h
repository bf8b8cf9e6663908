// Rows in the order in which experts take them: a counting sort of slots by expert.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/route.h"

namespace forebay::kernels {

// The slots and the place for their order; as in GroupRowsArgs.
struct SlotGroups {
  const int32_t* experts;
  int32_t experts_per_token, num_experts;
  int32_t *offsets, *source, *positions;
  RoutingCounters* counters;  // null: not counted
  LackedExperts lacked = {};
};

// for_each_slot(visit) calls visit(slot, taken) for all slots in order, twice alike; a slot that is
// not taken is in no group, and its position is -1.
template <typename ForEachSlot>
void GroupSlots(const SlotGroups& groups, ForEachSlot for_each_slot) {
  int32_t* const offsets = groups.offsets;
  const int32_t num_experts = groups.num_experts;
  std::fill_n(offsets, num_experts + 1, 0);
  for_each_slot([&](int64_t slot, bool taken) { offsets[groups.experts[slot] + 1] += taken; });
  std::partial_sum(offsets, offsets + num_experts + 1, offsets);
  // While rows are placed offsets[e] is the place of e's next row: at the end the border after it.
  for_each_slot([&](int64_t slot, bool taken) {
    const int32_t position = taken ? offsets[groups.experts[slot]]++ : -1;
    groups.positions[slot] = position;
    if (taken) groups.source[position] = static_cast<int32_t>(slot / groups.experts_per_token);
  });
  std::copy_backward(offsets, offsets + num_experts, offsets + num_experts + 1);
  offsets[0] = 0;
  if (groups.counters != nullptr) groups.counters->Count(offsets, num_experts);
  groups.lacked.Count(offsets);
}

}  // namespace forebay::kernels
