// The declared table of a rank's regions. A new region is one row of it.
#pragma once

#include <vector>

#include "layout/memory_plan.h"

namespace forebay::layout {

// An arena counts its regions in whole pages.
inline constexpr uint64_t kRegionRounding = 4 * base::kKiB;

// What the rank of `request` keeps, in the order in which it is allocated, for the length, rows and
// blocks of `plan`. REQUIRES: plan.decoder.
std::vector<Region> PlanRegions(const MemoryRequest& request, const MemoryPlan& plan);

}  // namespace forebay::layout
