// What a rank keeps in its arena: regions, planned before anything is allocated.
#pragma once

#include <cstddef>
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
  kState,
  kKv
};

// The regions of a rank, in the order of the rows of layout/region_table.cc.
enum class RegionId : uint8_t {
  kWeights,
  kWeightTables,
  kModeWeights,
  kModeTables,
  kWorkspace,
  kStepBatch,
  kChosenExperts,
  kKv,
  kKvWindow,
  kLayerStates,
  kWeightPool,
  kWeightSlots,
  kPoolTables,
  kTensorStaging,
  kSequenceStaging,
  kHeadStaging,
  kStageStaging,
  kShipRows,
  kShipSums,
  kCount
};
inline constexpr size_t kNumRegions = static_cast<size_t>(RegionId::kCount);

// The name by which arenas, peers and messages know a region.
const char* NameOf(RegionId id);

struct Region {
  RegionId id;
  device::MemoryUse kind;
  RegionUse use;
  bool published;      // Peers read or write it.
  uint64_t bytes = 0;  // Whole pages.
};

}  // namespace forebay::layout
