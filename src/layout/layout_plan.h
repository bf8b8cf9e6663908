// What a decided layout comes to before anything is made: what each rank pools and how its memory
// is divided. The engine and `forebay plan` share it, so that arenas really have the sizes that a
// plan shows. Pure.
#pragma once

#include <optional>
#include <vector>

#include "layout/group_options.h"
#include "layout/layout_draft.h"
#include "layout/memory_plan.h"

namespace forebay::layout {

// Whether the choices that run at once are as many as fit by the job's lengths: nobody says how
// many, and windowed layers take memory for each of them beside layers that see all.
bool FitsPlaces(const EngineOptions& options, const model::ModelConfig& config);

// What one rank of a replica holds.
struct RankPlan {
  MemoryRequest request;  // with the pools of its peers, by replica
  MemoryPlan memory;
};

// A draft with nothing open, and what its ranks hold.
struct LayoutPlan : LayoutDraft {
  std::vector<RankPlan> ranks;  // a replica's, stage by stage; replicas are alike
  // Most rows of a step of a replica's own to which experts come where they have rows; else all do.
  int64_t routed_rows = 0;
  int32_t prompt_blocks = 0;  // schedule::Limits::prompt_blocks
  // What a group does whose replicas may ship; nothing: they only pull.
  std::optional<GroupOptions> group;

  int replicas() const { return layout.groups * layout.dp; }
  // The ranks of a group share weights, and may compute with each other's rows.
  bool may_ship() const;
  // Bytes of a block of KV cache of the rank with the largest blocks, `digest` with its digests.
  uint64_t KvBlockBytes(bool digest) const;
  // Of a block below the devices, likewise.
  uint64_t BlockBytesBelow(bool digest) const;
  // kMemoryTooSmall: which part is how large, and what would fit.
  base::Status Fits() const;
};

// The plan of a draft, in one pass. From which rows on steps pull, ship or route is as the options
// say; what they leave open stays 0 (choose/borders.h sets it). REQUIRES: nothing is open in the
// draft. Errors: what cannot be pooled or shipped, modes (CheckShift), KV below the devices
// (CheckTier); not that memory is too small.
base::Result<LayoutPlan> PlanLayout(const EngineOptions& options, const LayoutDraft& draft);

}  // namespace forebay::layout
