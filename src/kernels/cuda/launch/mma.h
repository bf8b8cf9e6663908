// Which kernel of class mma_k16f25 runs a shape, on what grid, and the geometry in its parameters:
// functions of the shape and the GPU's count of multiprocessors alone. No answer depends on them.
#pragma once

#include <span>
#include <vector>

#include "device/cuda/launch_context.h"
#include "kernels/attention.h"
#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/pair/params.h"
#include "kernels/linear.h"
#include "kernels/step_batch.h"

namespace forebay::kernels::cuda {

struct KernelPlan {
  const char* kernel;
  device::LaunchShape shape;
};

// What plans share: the shared memory that a block may have; of the small kernels' rings, the bytes
// of a stage (as fast as larger ones; half of it costs 10 %) and the copies of a stage that the
// lanes of the producer hold.
inline constexpr int kSharedBytes = device::kMostSharedBytes, kStageBytes = 48 << 10,
                     kCopiesOfStage = 4 * 32;
constexpr int Ceil(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

// Whether the kernels of few and of many rows know what becomes of a sum; else the plain one does.
constexpr bool TensorCoresStore(LinearOutput output) {
  return output != LinearOutput::kErfGelu && output != LinearOutput::kErfGeluMul &&
         output != LinearOutput::kReluSquared;
}

// Launches a layer's kernels where the shape is one that they take: bf16 in chunks, rows of x as
// they are numbered, gates of one leaf alone, on compute capability 9.0. False: it has launched
// nothing.
bool LaunchLinear(const LinearArgs& args, const device::LaunchContext& context);

// Fills in units, row_groups, stage_chunks and stages.
// REQUIRES: to.rows in [1, 64], 1 to 8 leaves, each of a chunk at least.
KernelPlan PlanSmallLinear(int multiprocessors, SmallLinearParams* params);
// Fills in row_tiles, column_tiles and group. REQUIRES: two multiprocessors; gates have one leaf.
KernelPlan PlanManyLinear(int multiprocessors, ManyLinearParams* params);

// The kernel that takes every shape. Fills in `units`.
void LaunchPlainAttention(const AttentionArgs& args, AttentionParams params,
                          const device::LaunchContext& context);
// Launches a step's attention where its shape is one that the kernels of many and of single rows
// take: K and V in chunks, no caps, no sinks, on compute capability 9.0 with scratch. Rows that
// they do not take are plain kernels'. False: it has launched nothing.
bool LaunchAttention(const AttentionArgs& args, const AttentionParams& plain,
                     const device::LaunchContext& context);

// A row of a decode step: it sees positions [first, last] of the sequence whose blocks are row
// `table_row` of the block tables.
struct DecodeRow {
  int32_t row, table_row, first, last;
};
// Long units first.
std::vector<DecodeUnit> ListDecodeUnits(std::span<const DecodeRow> rows, int kv_heads);
// `units`: how many there are at least; `coded`: KV in one byte. REQUIRES: head_dim 64 or 128,
// group <= 8.
KernelPlan PlanDecode(int multiprocessors, int head_dim, int group, int units, bool coded = false);

// Tiles of a step's rows, long contexts first.
std::vector<PrefillTile> ListPrefillTiles(std::span<const SequenceRows> sequences);
// `tiles`: at most. REQUIRES: head_dim 128, no window.
KernelPlan PlanPrefill(int multiprocessors, int tiles, int heads, bool coded = false);

}  // namespace forebay::kernels::cuda
