// How the CPU sets cut a linear layer into work. Pure.
#pragma once

#include <cstdint>

#include "kernels/linear.h"

namespace forebay::kernels {

inline constexpr int kTileRows = 6;  // rows of a register tile at most: 6 x 64 sums fill 24 of 32 zmm

// Rows are cut into equal blocks (a worker takes one block through one panel at a time), blocks into register tiles of
// equal height, leaves into K blocks.
struct LinearBlocking {
  int row_blocks = 1;
  int k_block_pairs = 0;  // K pairs of all segments that the rows of a block pass together
  int static_units = 0;   // units (row block, panel) dealt out in advance; the others are taken by ticket
};

// A run of pairs inside one leaf, and what follows it.
struct LinearSegment {
  int16_t leaf;
  bool resume;       // adds to the sums of the segment before
  int8_t slot;       // of the stack of partial sums
  int8_t merges;     // after it, so many times: the top of the stack is added to the one below
  int8_t plane;      // complete after the merges, or -1
  bool group_end;    // the rows of a block pass the segments up to here together
  int32_t pair;      // first pair in the tile
  int32_t num_pairs;
  int32_t x_pair;    // first pair in the packed rows of x
};
inline constexpr int kMaxSegments = 128;
inline constexpr int kStackSlots = 4;  // 8 leaves: at most 3 nodes wait beside the current one

struct LinearSchedule {
  LinearBlocking blocking;
  int num_segments = 0;
  int num_groups = 0;
  int32_t pairs = 0;  // of all segments: the packed length of a row of x
  LinearSegment segments[kMaxSegments];
};

LinearSchedule ScheduleLinear(const LinearArgs& args, int num_workers);

// Rows [n * i / parts, n * (i + 1) / parts).
inline constexpr int64_t kRowsOfBlock = 256;

}  // namespace forebay::kernels
