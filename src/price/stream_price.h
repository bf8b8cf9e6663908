// What a step takes whose choices have a part of their KV below the device.
#pragma once

#include "kv/book/offload_plan.h"
#include "layout/machine.h"
#include "layout/memory_plan.h"
#include "price/step_price.h"

namespace forebay::price {

// Blocks that choices hold which have so many positions computed; each has one that is half full.
inline double HeldBlocks(int64_t tokens, int64_t choices) {
  return static_cast<double>(tokens) / kernels::kBlockTokens + static_cast<double>(choices) / 2;
}

// Bytes a second at which what is streamed comes up to a rank: over the host's link, and before
// that from the disk, which all `ranks` share, where memory holds nothing.
double StreamRate(const cost::DeviceProfile& profile, const kv::TierBlocks& below, int ranks);

// A step of one rank in a steady row of such steps, by the prices of its device and its host's
// link. `alone`: with all of `held_blocks` resident, without what it pulls of weights (`pulls`);
// blocks that are not resident pass through the window, and where peers are reached through the
// host, on the link that pulls leave.
// What its plans are judged by where so many are streamed, and its own plan.
kv::OffloadCosts StreamingCosts(const StepPricer& pricer, const layout::MachinePlan& machine,
                                const layout::MemoryPlan& memory, double held_blocks,
                                double streamed_blocks, const cost::Work& alone,
                                const StepPulls& pulls = {});
kv::OffloadPlan PriceStreaming(const StepPricer& pricer, const layout::MachinePlan& machine,
                               const layout::MemoryPlan& memory, double held_blocks,
                               const cost::Work& alone, const StepPulls& pulls = {});

}  // namespace forebay::price
