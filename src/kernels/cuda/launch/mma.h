// Which kernel of class mma_k16f25 runs a shape, on what grid, and the geometry in its parameters:
// functions of the shape and the GPU's count of multiprocessors alone. No answer depends on them.
#pragma once

#include <span>
#include <vector>

#include "device/cuda/launch_context.h"
#include "kernels/cuda/mma/params.h"
#include "kernels/step_batch.h"

namespace forebay::kernels::cuda {

struct KernelPlan {
  const char* kernel;
  device::LaunchShape shape;
};

// Fills in units, row_groups, stage_chunks and stages.
// REQUIRES: rows in [1, 64], 1 to 8 leaves, each of a chunk at least.
KernelPlan PlanSmallLinear(int multiprocessors, SmallLinearParams* params);
// Fills in row_tiles, column_tiles and group. REQUIRES: two multiprocessors.
KernelPlan PlanManyLinear(int multiprocessors, ManyLinearParams* params);

// A row of a decode step: it sees positions [first, last] of the sequence whose blocks are row
// `table_row` of the block tables.
struct DecodeRow {
  int32_t row, table_row, first, last;
};
// Long units first.
std::vector<DecodeUnit> ListDecodeUnits(std::span<const DecodeRow> rows, int kv_heads);
// REQUIRES: head_dim 64 or 128, group <= 8.
KernelPlan PlanDecode(int multiprocessors, int head_dim, const DecodeParams& params);

// Tiles of a step's rows, long contexts first.
std::vector<PrefillTile> ListPrefillTiles(std::span<const SequenceRows> sequences);
// REQUIRES: head_dim 128, no window.
KernelPlan PlanPrefill(int multiprocessors, const PrefillParams& params);

}  // namespace forebay::kernels::cuda
