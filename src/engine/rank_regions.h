// The regions of a rank, by what they are for.
#pragma once

#include <array>

#include "base/check.h"
#include "device/device.h"
#include "layout/memory_plan.h"

namespace forebay::engine {

// Borrows from the arena that has them.
class RankRegions {
 public:
  // Allocates the plan's regions in their order.
  base::Status Allocate(const layout::MemoryPlan& plan, device::Arena* arena) {
    for (const layout::Region& planned : plan.regions) {
      FB_ASSIGN_OR_RETURN(at_[static_cast<size_t>(planned.id)],
                          arena->Allocate(layout::NameOf(planned.id), planned.bytes, planned.kind));
    }
    return {};
  }

  // Null: the rank has no such region.
  const device::Region* Find(layout::RegionId id) const { return at_[static_cast<size_t>(id)]; }
  // REQUIRES: the rank has it.
  const device::Region& operator[](layout::RegionId id) const {
    FB_CHECK(Find(id) != nullptr, "the rank has no region \"{}\"", layout::NameOf(id));
    return *Find(id);
  }

 private:
  std::array<const device::Region*, layout::kNumRegions> at_{};
};

}  // namespace forebay::engine
