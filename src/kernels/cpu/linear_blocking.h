// How the CPU sets cut a linear layer into work. Pure.
//
//   rows -> row blocks -> register tiles of up to 6 rows          K -> leaves -> segments; groups
//   of segments
//
// A unit of work is (row block, panel). In it all register tiles pass one group of segments after
// another, so that the group's weights are read from memory once and stay in the cache for all
// tiles but the first. A single register tile instead passes leaf after leaf of a batch of panels,
// as they lie in memory.
#pragma once

#include <cstdint>

#include "kernels/linear.h"

namespace forebay::kernels {

inline constexpr int kTileRows = 6;  // 6 x 64 sums fill 24 of 32 512-bit registers
inline constexpr int kMaxBlockRows = 256;
inline constexpr int kMaxSegments = 128;
inline constexpr int kBatchPanels = 16;
// 8 leaves: at most 3 nodes of the tree wait beside the current one
inline constexpr int kStackSlots = 4;

// a / b, rounded up.
int64_t DivideUp(int64_t a, int64_t b);

// A run of pairs (of int8 layers quads, here and below) inside one leaf, and what follows it.
// Partial sums form a stack, as the digits of a binary counter.
struct LinearSegment {
  int32_t pair;  // first pair in the tile
  int32_t num_pairs;
  int32_t x_pair;  // first pair in a packed row of x
  int8_t leaf;
  int8_t slot;    // place in the stack where the leaf's sum is made
  int8_t merges;  // after the leaf: so often the top of the stack is added to the one below
  int8_t plane;   // output plane (0 for a full one) that the merges complete; or -1
  bool resume;    // the leaf began in the segment before
  bool group_end;
};

// At the begin of a worker's scratch: where the sums of its stacks wait, in every set.
inline constexpr int64_t kSumsBytes = 272 << 10;

// At the end of a worker's scratch, where the weight has stored tiles: a group of segments of one
// panel, expanded, and as much again as their rounding to whole units of 8 pairs may add.
inline constexpr int64_t kMostGroupBytes = 256 << 10;
inline constexpr int64_t kExpandedBytes = kMostGroupBytes + (16 << 10);
// Checks that the worker has it.
std::byte* ExpandedMemory(const device::WorkerContext& context);

// Up to this many bytes of packed x each worker packs all of it: cheaper than a barrier.
inline constexpr int64_t kOwnPackedBytes = 64 << 10;
inline constexpr int kMaxShares = 2;  // each has a part of the ticket's bits
inline constexpr int kShareBits = 32;

struct LinearSchedule {
  int row_blocks = 1;
  int64_t units = 0;  // row_blocks x panels, blocks outermost
  int shares = 1;     // parts of the units, in their order; each has equally many workers
  // pieces of an open unit, in register tiles of its block
  int open_pieces = 1;
  int batch_panels = 1;     // units at a time
  int32_t group_pairs = 0;  // most pairs in a group
  int num_groups = 0;
  int32_t pairs = 0;  // pairs of all segments: the length of a packed row of x
  int num_segments = 0;
  LinearSegment segments[kMaxSegments];
};

// The units of a share. Units before `open` are dealt to its workers in advance. Any worker takes
// the others by ticket (an eighth of all, none if fewer than 8), so an interrupted worker holds up
// no other. A core so computes the same rows in each layer: they need not come from another core's
// cache.
struct LinearShare {
  int64_t begin, open, end;
};
LinearShare ShareOf(const LinearSchedule& schedule, int share, int num_workers);

// The most rows of a block. Its x (1 MiB of bf16 at K = 2048) comes from L2 or L3 once a panel, so
// blocks of long K have fewer rows.
int64_t BlockRows(tensor::DType dtype, int64_t k);

LinearSchedule ScheduleLinear(const LinearArgs& args, int num_workers);

}  // namespace forebay::kernels
