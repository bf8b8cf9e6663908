// The arrays of a step batch: listed once, for the plan of memory that sums them up and for the
// rank that cuts them.
#pragma once

#include <cstdint>
#include <span>

#include "device/device.h"
#include "kernels/draw_row.h"
#include "kernels/step_batch.h"

namespace forebay::layout {

// Most of what a step has.
struct StepShape {
  int64_t rows = 0, sequences = 0, blocks_per_sequence = 0;
  int kv_groups = 0;
  int64_t expanded_blocks = 0;  // model::ExpandedBlocks
  bool typed = false;           // rows have token types
  int64_t state_rows = 0;       // of StepBatch::state_rows; 0: no layer keeps a state
  bool draws = false;           // kernels draw tokens
};

// Most likely tokens for which a step's results have room, a sequence.
inline constexpr int kLikelyTokens = 32;

struct StepArrays {
  kernels::StepBatch batch;
  kernels::LatentForms forms;          // arrays only where the shape has expanded blocks
  int32_t* logit_positions = nullptr;  // [logit rows]
  // [sequences] where the shape draws: as in DrawRowsArgs and LikelyRowsArgs.
  kernels::DrawRow* draws = nullptr;
  kernels::LikelyRow* likely = nullptr;
  // What the host writes for one step, and what kernels write for it to read: one piece each.
  std::span<const std::byte> written;
  std::span<std::byte> results;
};

// Those of all steps that may be in flight at once.
uint64_t StepArrayBytes(const StepShape& shape, int32_t steps_in_flight);
// One step's. Of `shared` (null: this is the rank's first step) it has the block tables and the
// sampled tokens, which belong to sequences and not to a step.
StepArrays CutStepArrays(const StepShape& shape, const StepArrays* shared,
                         device::RegionCutter* cutter);

}  // namespace forebay::layout
