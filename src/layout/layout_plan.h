// What an engine's options come to before anything is made: its devices, their layout, what is
// pooled, and how the memory of a rank is divided. The engine and `forebay plan` share it, so that
// arenas really have the sizes that a plan shows.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "layout/group_options.h"
#include "layout/layout.h"
#include "layout/machine.h"
#include "layout/memory_plan.h"
#include "layout/shift_plan.h"
#include "model/routing.h"

namespace forebay::layout {

// What one rank of a replica holds.
struct RankPlan {
  MemoryRequest request;  // with the pools of its peers, by replica
  MemoryPlan memory;
};

struct LayoutPlan {
  tensor::DType dtype = tensor::DType::kBF16;
  const kernels::KernelSet* kernels = nullptr;
  MachinePlan machine;
  // pool_layers is set where weights are pooled, expert_size where experts are
  Layout layout;
  int32_t steps_in_flight = 1;  // a replica's steps at once
  // Which experts rows go to where there are no data; null: data say so, or there are no experts.
  std::shared_ptr<const model::Routing> routing;
  std::vector<RankPlan> ranks;  // a replica's, stage by stage; replicas are alike
  ShiftPlan shift;              // in which mode a step is taken
  // Most rows of a step of a replica's own to which experts come where they have rows; else all do.
  int64_t routed_rows = 0;
  // Blocks of running choices that are to lie below, at most: memory has what there is room for.
  int32_t streamed_blocks = 0;
  int32_t prompt_blocks = 0;  // schedule::Limits::prompt_blocks
  // What a group does whose replicas may ship; nothing: they only pull.
  std::optional<GroupOptions> group;

  int replicas() const { return layout.groups * layout.dp; }
  // The model as the devices hold it: --quantization and --kv-cache-dtype count.
  const model::ModelConfig& config() const { return ranks[0].memory.decoder->config; }
  // Bytes of a block of KV cache of the rank with the largest blocks, `digest` with its digests.
  uint64_t KvBlockBytes(bool digest) const;
  // kMemoryTooSmall: which part is how large, and what would fit.
  base::Status Fits() const;
};

}  // namespace forebay::layout
