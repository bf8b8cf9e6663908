// What a rank keeps in its arena: regions, planned before anything is allocated.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace forebay::layout {

// What a region is for; `forebay plan --memory`, errors and totals sum by it.
enum class RegionUse : uint8_t {
  kWeights,
  kModeWeights,
  kPool,
  kSlots,
  kWorkspace,
  kStaging,
  kTables,
  kKv
};

struct Region {
  const char* name;
  device::MemoryUse kind;
  RegionUse use;
  bool published;      // Peers read or write it.
  uint64_t bytes = 0;  // Whole pages.
};

}  // namespace forebay::layout
