// The loop nest of linear layers of bf16 on tiles, around
//
//   struct Tiles {             // eight registers of 16 rows of 64 bytes
//     explicit Tiles(int x_rows);             // registers 0 to 4 have x_rows rows, 5 to 7 have 16
//     void Release();
//     template <int kTile> void Zero();
//     template <int kTile> void Load(const void* rows, int64_t stride);         // strides in bytes
//     template <int kTile> void Store(float* rows, int64_t stride) const;
//     template <int kSum, int kX, int kW> void MultiplyAdd();                   // a step,
//     tile_order.h
//   };
//
//   rows -> row blocks -> row tiles of 16            K -> leaves -> steps of 32
//
// A unit of work is (row block, panel), blocks outermost, of as few blocks as 256 rows allow: each
// passes all weights through the cache again, and tiles multiply faster than memory reads. Leaf by
// leaf the row tiles of the block pass the panel, all of the leaf in one run: two row tiles by two
// of the panel's four tiles of columns, so that 4 loads serve 4 products; a row tile alone by all
// four, from 5 loads. Any number of rows goes through the same steps; the rows that fill up a tile
// are zero and their sums are left.
//
// A leaf of a stored tile passes in runs of some steps that are expanded into the worker's scratch,
// by the set's `constexpr ExpandFunction kExpand`; sums wait in the stacks in between.
//
// Included once by each file that has a Tiles; see simd.h on why all of it is unnamed and forced
// inline.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/experts_walk.h"
#include "kernels/cpu/linear_blocking.h"
#include "kernels/cpu/linear_epilogue.h"
#include "kernels/expand.h"
#include "kernels/linear_sets.h"

namespace forebay::kernels {
namespace {

constexpr int kTileHeight = 16;
constexpr int kStepPairs = kTileDepth / 2;
constexpr int64_t kPairBytes = kPanelColumns * 2 * sizeof(BF16);
constexpr int64_t kStepBytes = kStepPairs * kPairBytes;  // a panel's weights: 4 KiB
constexpr int64_t kSumsStride = kPanelColumns * sizeof(float);
// a slot: the sums of a row tile, [16][64]
constexpr int64_t kTileFloats = kTileHeight * kPanelColumns;
constexpr int64_t kStackFloats = kStackSlots * kTileFloats;  // the stack of one row tile
constexpr int64_t kExpandedSteps = kMostGroupBytes / kStepBytes;
constexpr int64_t kBlockTiles = kMaxBlockRows / kTileHeight;
constexpr int64_t kStacksBytes = kBlockTiles * kStackFloats * static_cast<int64_t>(sizeof(float));
static_assert(kStacksBytes + kStepBytes <= kSumsBytes);

// Weights that nothing has fetched yet are prefetched so far ahead: a guess, until this loop runs
// on hardware.
constexpr int64_t kTileStreamBytes = 8192;

FB_INLINE int64_t StepsOf(const LeafBorders& leaves, int leaf) {
  return (leaves.begin[leaf + 1] - leaves.begin[leaf] + kTileDepth - 1) / kTileDepth;
}

// Walks over weights that are needed later, some bytes a step.
struct Fetch {
  const char* line;
  int64_t step_bytes;

  FB_INLINE void Step() {
    for (const char* const end = line + step_bytes; line < end; line += 64)
      _mm_prefetch(line, _MM_HINT_T1);
  }
};

// The weights of a leaf in a panel: whole steps, and the last one, filled up with zeros, where K is
// no multiple of 32.
struct LeafWeights {
  const std::byte* tile;
  const std::byte* tail;
  int64_t steps, whole_steps;

  FB_INLINE const std::byte* At(int64_t step) const {
    return step < whole_steps ? tile + step * kStepBytes : tail;
  }
};

// Sums of codes have no order, and no tiles yet.
FB_INLINE bool IsInt8(const PackedWeight& weight) {
  return weight.forms == nullptr && weight.form == TileForm::kW8A8;
}

template <typename Tiles>
struct TileLoop {
  const LinearArgs& args;
  const LinearSchedule& schedule;  // the order of the leaves
  const device::WorkerContext& context;
  int x_rows;     // a row tile's rows in packed x: all if they are fewer than 16
  int64_t steps;  // steps of all leaves
  int64_t row_blocks;
  BF16* packed;     // [row tiles][steps][x_rows][32]
  float* stacks;    // one for each row tile of a block
  std::byte* tail;  // a step of weights

  static FB_INLINE int64_t NumTiles(const LinearArgs& args) {
    return (args.rows + kTileHeight - 1) / kTileHeight;
  }
  FB_INLINE int64_t PackedTileElements() const { return steps * x_rows * kTileDepth; }

  void PackTile(int64_t tile) const {
    const LeafBorders& leaves = args.weight.leaves;
    BF16* out = packed + tile * PackedTileElements();
    for (int leaf = args.leaf_begin; leaf < args.leaf_end; ++leaf) {
      for (int64_t k = leaves.begin[leaf]; k < leaves.begin[leaf + 1]; k += kTileDepth) {
        const int64_t left = leaves.begin[leaf + 1] - k;
        const int64_t elements = left < kTileDepth ? left : kTileDepth;
        for (int64_t row = tile * kTileHeight; row < tile * kTileHeight + x_rows;
             ++row, out += kTileDepth) {
          const BF16* x = row < args.rows
                              ? reinterpret_cast<const BF16*>(XRow<sizeof(BF16)>(args, row)) + k
                              : nullptr;
          if (x != nullptr && elements == kTileDepth) {
            __builtin_memcpy(out, x, kTileDepth * sizeof(BF16));
          } else {
            __builtin_memset(static_cast<void*>(out), 0, kTileDepth * sizeof(BF16));
            if (x != nullptr)
              __builtin_memcpy(out, x, static_cast<size_t>(elements) * sizeof(BF16));
          }
        }
      }
    }
  }
  void PackX(int64_t part, int64_t parts) const {
    const Rows mine = Part(NumTiles(args), part, parts);
    for (int64_t tile = mine.begin; tile < mine.end; ++tile) PackTile(tile);
  }

  FB_INLINE const std::byte* TileOf(int leaf, int64_t panel) const {
    return args.weight.tiles[static_cast<int64_t>(leaf) * args.weight.num_panels + panel];
  }
  LeafWeights WeightsOf(int leaf, int64_t panel) const {
    const LeafBorders& leaves = args.weight.leaves;
    const int64_t pairs = (leaves.begin[leaf + 1] - leaves.begin[leaf] + 1) / 2;
    const LeafWeights weights{TileOf(leaf, panel), tail, StepsOf(leaves, leaf), pairs / kStepPairs};
    if (weights.whole_steps < weights.steps) {
      const auto bytes =
          static_cast<size_t>((pairs - weights.whole_steps * kStepPairs) * kPairBytes);
      __builtin_memset(tail, 0, kStepBytes);
      __builtin_memcpy(tail, weights.tile + weights.whole_steps * kStepBytes, bytes);
    }
    return weights;
  }

  // Steps [begin, end) of a leaf of a stored tile, the last one filled up with zeros.
  LeafWeights Expanded(int leaf, int64_t panel, int64_t begin, int64_t end) const {
    const PackedWeight& weight = args.weight;
    const int32_t first = weight.leaves.begin[leaf], last = weight.leaves.begin[leaf + 1];
    const int64_t pairs = (last - first + 1) / 2, end_pair = end * kStepPairs;
    const int64_t count = (end_pair < pairs ? end_pair : pairs) - begin * kStepPairs;
    std::byte* const memory = ExpandedMemory(context);
    kExpand({weight.forms == nullptr ? weight.form : weight.forms[panel], weight.dtype,
             TileOf(leaf, panel), weight.first_k + first, weight.first_k + last, begin * kStepPairs,
             count, memory});
    const int64_t filled = count * kPairBytes, all = (end - begin) * kStepBytes;
    __builtin_memset(memory + filled, 0, static_cast<size_t>(all - filled));
    return {memory, nullptr, end - begin, end - begin};
  }

  // How the sums of a run of steps begin: at zero, or where those of the steps before ended.
  static FB_INLINE void BeginSums(Tiles& tiles, bool resume, const float* s0, const float* s1,
                                  const float* s2, const float* s3) {
    if (resume) {
      tiles.template Load<0>(s0, kSumsStride);
      tiles.template Load<1>(s1, kSumsStride);
      tiles.template Load<2>(s2, kSumsStride);
      tiles.template Load<3>(s3, kSumsStride);
    } else {
      tiles.template Zero<0>();
      tiles.template Zero<1>();
      tiles.template Zero<2>();
      tiles.template Zero<3>();
    }
  }

  // Two row tiles by half of the panel's columns.
  FB_INLINE void RunTwo(Tiles& tiles, const BF16* x, const LeafWeights& weights, bool resume,
                        int half, float* sums, Fetch fetch, int64_t turn,
                        const std::byte* next) const {
    const int64_t x_bytes = kTileDepth * sizeof(BF16), offset = half * 2 * x_bytes;
    const BF16* x1 = x + PackedTileElements();
    sums += half * 2 * kTileHeight;
    BeginSums(tiles, resume, sums, sums + kTileHeight, sums + kStackFloats,
              sums + kStackFloats + kTileHeight);
    for (int64_t step = 0; step < weights.steps;
         ++step, x += kTileHeight * kTileDepth, x1 += kTileHeight * kTileDepth) {
      const std::byte* w = weights.At(step) + offset;
      if (step == turn) fetch.line = reinterpret_cast<const char*>(next);
      fetch.Step();
      tiles.template Load<6>(w, kPairBytes);
      tiles.template Load<4>(x, x_bytes);
      tiles.template MultiplyAdd<0, 4, 6>();
      tiles.template Load<7>(w + x_bytes, kPairBytes);
      tiles.template MultiplyAdd<1, 4, 7>();
      tiles.template Load<5>(x1, x_bytes);
      tiles.template MultiplyAdd<2, 5, 6>();
      tiles.template MultiplyAdd<3, 5, 7>();
    }
    tiles.template Store<0>(sums, kSumsStride);
    tiles.template Store<1>(sums + kTileHeight, kSumsStride);
    tiles.template Store<2>(sums + kStackFloats, kSumsStride);
    tiles.template Store<3>(sums + kStackFloats + kTileHeight, kSumsStride);
  }

  // A row tile by all columns.
  FB_INLINE void RunOne(Tiles& tiles, const BF16* x, const LeafWeights& weights, bool resume,
                        float* sums, Fetch fetch, int64_t turn, const std::byte* next) const {
    const int64_t x_bytes = kTileDepth * sizeof(BF16),
                  x_step = static_cast<int64_t>(x_rows) * kTileDepth;
    BeginSums(tiles, resume, sums, sums + kTileHeight, sums + 2 * kTileHeight,
              sums + 3 * kTileHeight);
    for (int64_t step = 0; step < weights.steps; ++step, x += x_step) {
      const std::byte* w = weights.At(step);
      if (step == turn) fetch.line = reinterpret_cast<const char*>(next);
      fetch.Step();
      tiles.template Load<4>(x, x_bytes);
      tiles.template Load<5>(w, kPairBytes);
      tiles.template MultiplyAdd<0, 4, 5>();
      tiles.template Load<6>(w + x_bytes, kPairBytes);
      tiles.template MultiplyAdd<1, 4, 6>();
      tiles.template Load<7>(w + 2 * x_bytes, kPairBytes);
      tiles.template MultiplyAdd<2, 4, 7>();
      tiles.template Load<5>(w + 3 * x_bytes, kPairBytes);
      tiles.template MultiplyAdd<3, 4, 5>();
    }
    tiles.template Store<0>(sums, kSumsStride);
    tiles.template Store<1>(sums + kTileHeight, kSumsStride);
    tiles.template Store<2>(sums + 2 * kTileHeight, kSumsStride);
    tiles.template Store<3>(sums + 3 * kTileHeight, kSumsStride);
  }

  // After a leaf: the top of a row tile's stack is added to the slots below, and goes to y where
  // the output is complete.
  void Close(int64_t tile, int64_t panel, const LinearSegment& leaf, float* stack) const {
    const Rows rows{tile * kTileHeight, tile * kTileHeight + x_rows < args.rows
                                            ? tile * kTileHeight + x_rows
                                            : args.rows};
    float* top = stack + leaf.slot * kTileFloats;
    for (int merge = 0; merge < leaf.merges; ++merge, top -= kTileFloats) {
      for (int64_t i = 0; i < x_rows * kPanelColumns; i += kLanes) {
        (Vector::Load(top - kTileFloats + i) + Vector::Load(top + i)).Store(top - kTileFloats + i);
      }
    }
    if (leaf.plane >= 0) FinishTile<BF16>(args, rows, panel, leaf.plane, top);
  }

  // The row tiles of a block through one leaf of a panel; `next`: the weights to come after it.
  void RunLeaf(Tiles& tiles, Rows block, int64_t panel, const LinearSegment& leaf,
               int64_t first_step, const std::byte* next) const {
    const PackedWeight& weight = args.weight;
    if ((weight.forms == nullptr ? weight.form : weight.forms[panel]) == TileForm::kExpanded)
      return RunSteps(tiles, block, panel, leaf, WeightsOf(leaf.leaf, panel), first_step, {}, next);
    const int64_t leaf_steps = StepsOf(weight.leaves, leaf.leaf);
    for (int64_t begin = 0; begin < leaf_steps; begin += kExpandedSteps) {
      const int64_t end = begin + kExpandedSteps < leaf_steps ? begin + kExpandedSteps : leaf_steps;
      const LeafWeights weights = Expanded(leaf.leaf, panel, begin, end);
      RunSteps(tiles, block, panel, leaf, weights, first_step + begin,
               {begin > 0, end == leaf_steps}, weights.tile);
    }
  }

  // Where a run of steps lies in its leaf.
  struct RunPlace {
    bool resumes = false, ends = true;
  };

  // `next`: so many bytes as the steps have, to prefetch.
  void RunSteps(Tiles& tiles, Rows block, int64_t panel, const LinearSegment& leaf,
                const LeafWeights& weights, int64_t first_step, RunPlace place,
                const std::byte* next) const {
    // Runs of pairs of row tiles, for a half of the columns.
    const int64_t runs = (block.end - block.begin + 1) / 2;
    // One run streams its weights from memory; more of them share the fetching of what comes next.
    const bool streams = runs == 1;
    const int64_t turn = !streams ? -1 : weights.whole_steps > 2 ? weights.whole_steps - 2 : 0;
    for (int half = 0; half < 2; ++half) {
      for (int64_t tile = block.begin; tile < block.end; tile += 2) {
        const int64_t run = half * runs + (tile - block.begin) / 2;
        const bool alone = tile + 1 == block.end;
        Fetch fetch{reinterpret_cast<const char*>(weights.tile) + kTileStreamBytes,
                    streams && (alone || half == 0) ? kStepBytes : 0};
        if (!streams) {
          fetch = {
              reinterpret_cast<const char*>(next) + weights.steps * kStepBytes * run / (2 * runs),
              kStepBytes / (2 * runs)};
        }
        const BF16* x = packed + tile * PackedTileElements() + first_step * x_rows * kTileDepth;
        float* stack = stacks + (tile - block.begin) * kStackFloats;
        float* sums = stack + leaf.slot * kTileFloats;
        if (!alone) {
          RunTwo(tiles, x, weights, place.resumes, half, sums, fetch, turn, next);
        } else if (half == 1) {
          RunOne(tiles, x, weights, place.resumes, sums, fetch, turn, next);
        }
        if (half == 0 || !place.ends) continue;
        Close(tile, panel, leaf, stack);
        if (!alone) Close(tile + 1, panel, leaf, stack + kStackFloats);
      }
    }
  }

  struct Unit {
    Rows block;  // the row tiles of one block
    int64_t panel;
  };
  FB_INLINE Unit UnitOf(int64_t unit) const {
    return {Part(NumTiles(args), unit / args.weight.num_panels, row_blocks),
            unit % args.weight.num_panels};
  }

  void RunUnit(Tiles& tiles, const Unit& unit, int64_t next_panel) const {
    int64_t first_step = 0;
    for (int i = 0; i < schedule.num_segments; ++i) {
      const LinearSegment& segment = schedule.segments[i];
      const bool last = i + 1 == schedule.num_segments;
      // a leaf is one run here: its last segment says what follows
      if (!last && schedule.segments[i + 1].resume) continue;
      const std::byte* next =
          last ? TileOf(args.leaf_begin, next_panel) : TileOf(segment.leaf + 1, unit.panel);
      RunLeaf(tiles, unit.block, unit.panel, segment, first_step, next);
      first_step += StepsOf(args.weight.leaves, segment.leaf);
    }
  }

  // The units `mine` first, then those from `open` on that the tickets give; one ahead, to prefetch
  // it.
  void Run(Rows mine, int64_t open) const {
    const int64_t units = row_blocks * args.weight.num_panels;
    const auto take = [&]() __attribute__((always_inline)) {
      if (mine.begin < mine.end) return mine.begin++;
      return open < units ? open + context.ticket->fetch_add(1) : units;
    };
    int64_t unit = take();
    if (unit >= units) return;
    Tiles tiles(x_rows);
    while (unit < units) {
      const int64_t next = take();
      const Unit here = UnitOf(unit);
      RunUnit(tiles, here, next < units ? UnitOf(next).panel : here.panel);
      unit = next;
    }
    tiles.Release();
  }
};

// With packed x in args.workspace.
template <typename Tiles>
FB_INLINE TileLoop<Tiles> TileLoopOf(const LinearArgs& args, const LinearSchedule& schedule,
                                     const device::WorkerContext& context) {
  int64_t steps = 0;
  for (int leaf = args.leaf_begin; leaf < args.leaf_end; ++leaf)
    steps += StepsOf(args.weight.leaves, leaf);
  const int x_rows = args.rows < kTileHeight ? args.rows : kTileHeight;
  const int64_t row_blocks = (TileLoop<Tiles>::NumTiles(args) + kBlockTiles - 1) / kBlockTiles;
  return {args,
          schedule,
          context,
          x_rows,
          steps,
          row_blocks,
          reinterpret_cast<BF16*>(args.workspace),
          reinterpret_cast<float*>(context.scratch),
          context.scratch + kStacksBytes};
}

template <typename Tiles>
FB_INLINE void RunTileLinear(const LinearArgs& args, const device::WorkerContext& context) {
  const LinearSchedule schedule = ScheduleLinear(args, context.num_workers);
  TileLoop<Tiles> loop = TileLoopOf<Tiles>(args, schedule, context);
  const int64_t tiles = TileLoop<Tiles>::NumTiles(args);
  if (tiles * loop.PackedTileElements() * static_cast<int64_t>(sizeof(BF16)) <= kOwnPackedBytes) {
    loop.packed = reinterpret_cast<BF16*>(context.scratch + kSumsBytes);
    loop.PackX(0, 1);
  } else {
    loop.PackX(context.worker, context.num_workers);
    context.Barrier();
  }
  // A worker's own part first, then the open ones.
  const int64_t units = loop.row_blocks * args.weight.num_panels;
  const int64_t open = context.num_workers == 1 ? units : units - units / 8;
  loop.Run(Part(open, context.worker, context.num_workers), open);
}

// As experts_loop.h.
template <typename Tiles>
FB_INLINE void RunTileExperts(const ExpertsArgs& args, const device::WorkerContext& context) {
  ExpertWalk walk(args, context, kMaxBlockRows);
  ExpertPiece piece;
  while (walk.Next(&piece)) {
    const LinearSchedule schedule = ScheduleLinear(piece.layer, 1);
    const TileLoop<Tiles> loop = TileLoopOf<Tiles>(piece.layer, schedule, context);
    if (!piece.same_rows) loop.PackX(0, 1);
    loop.Run({piece.first_panel, piece.last_panel}, loop.row_blocks * args.weight.num_panels);
  }
}

}  // namespace
}  // namespace forebay::kernels
