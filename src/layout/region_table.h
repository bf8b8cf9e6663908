// The declared table of a rank's regions. A new region is one row of it.
#pragma once

#include <vector>

#include "layout/memory_plan.h"

namespace forebay::layout {

// An arena counts its regions in whole pages.
inline constexpr uint64_t kRegionRounding = 4 * base::kKiB;

// A use beside the KV cache, which gets what these leave: how `forebay plan --memory` and messages
// list it, and which flags make it smaller.
struct FixedUse {
  RegionUse use;
  const char *key, *name;
  const char* shrunk_by;  // null: only another layout or more memory helps
};
inline constexpr FixedUse kFixedUses[] = {
    {RegionUse::kWeights, "weight_bytes", "weights of its own", nullptr},
    {RegionUse::kModeWeights, "mode_weight_bytes", "weights of further modes", nullptr},
    {RegionUse::kPool, "pool_bytes", "share of pooled weights", nullptr},
    {RegionUse::kSlots, "slot_bytes", "slots for pulled weights",
     "--pool-slots, --pool-look-ahead"},
    {RegionUse::kWorkspace, "workspace_bytes", "workspace of a step", "--max-num-batched-tokens"},
    {RegionUse::kStaging, "staging_bytes", "staging for other ranks",
     "--max-num-batched-tokens, of experts --expert-rows"},
    {RegionUse::kTables, "table_bytes", "tables of tiles", nullptr},
    {RegionUse::kState, "state_bytes", "layers' states", "--max-num-seqs"}};

// What the rank of `request` keeps, in the order in which it is allocated, for the length, rows and
// blocks of `plan`. REQUIRES: plan.decoder.
std::vector<Region> PlanRegions(const MemoryRequest& request, const MemoryPlan& plan);

}  // namespace forebay::layout
