// The loop nest of a CPU set's linear layer, around the set's register kernel
//
//   template <typename T> struct Micro {   // T: BF16 or float
//     using Packed = ...;                  // element of packed x; kPackedPerPair of them hold a K
//                                          pair of one row
//     // `rows` rows (1..6), `elements` of row r from x[r] on -> out [pairs][kPackedPerPair][rows],
//     // padded with +0
//     static void Pack(const T* const* x, int rows, int64_t elements, Packed* out);
//     // x [pairs][..][rows] * w [pairs][64][2] into the slot `sums` [rows][64]: see Extent
//     static void Run(int rows, const Packed* x, const std::byte* w, const Extent& extent, float*
//     sums,
//                     const Ahead& ahead);  // ahead: what to prefetch meanwhile
//   };
//
// and of
//
//   constexpr ExpandFunction kExpand = ...;  // the set's, for stored tiles
//   constexpr bool kHasMultiplyPart = ...;  // if so, for few rows of bf16:
//   constexpr MultiplyPartFunction kMultiplyPart = ...;
//
// and the Products of int8 layers (linear_int8.h), of which a set may have several.
//
// A group of segments whose tile is stored is expanded into the worker's scratch before the
// register tiles of the block pass it; of a single register tile it is multiplied as it lies, where
// the set can.
//
// Sums of a register tile wait in a stack of [6][64] slots in the worker's scratch, where leaves
// are added; the output mode is applied there. Included once by each set's file; see simd.h on why
// all of it is unnamed and forced inline.
#pragma once

#include "kernels/cpu/linear_blocking.h"
#include "kernels/cpu/linear_epilogue.h"
#include "kernels/cpu/linear_int8.h"
#include "kernels/cpu/linear_tile.h"
#include "kernels/expand.h"
#include "kernels/linear_sets.h"

namespace forebay::kernels {
namespace {

// Stacks that wait at a time: of a block's register tiles, or of one tile in a batch of panels.
constexpr int kMaxStacks = kMaxBlockRows / kTileRows + 1;
static_assert(kBatchPanels <= kMaxStacks);
static_assert(kStackSlots * kSlotFloats * sizeof(float) * kMaxStacks <= kSumsBytes);

// kInt8: Kernel is an Int8Kernel, and a pair is a quad.
template <typename T, typename Kernel, bool kInt8 = false>
struct LinearLoop {
  using Packed = typename Kernel::Packed;

  const LinearArgs& args;
  const LinearSchedule& schedule;
  const device::WorkerContext& context;
  Packed* packed;
  float* slots;

  FB_INLINE Rows Block(int64_t block) const { return Part(args.rows, block, schedule.row_blocks); }
  static FB_INLINE int64_t NumTiles(Rows block) {
    return (block.end - block.begin + kTileRows - 1) / kTileRows;
  }
  static FB_INLINE Rows Tile(Rows block, int64_t tile) {
    const Rows part = Part(block.end - block.begin, tile, NumTiles(block));
    return {block.begin + part.begin, block.begin + part.end};
  }
  // Elements of a packed row: behind codes stands a scale a leaf.
  static FB_INLINE int64_t RowLength(const LinearArgs& args, const LinearSchedule& schedule) {
    return int64_t{schedule.pairs} * Kernel::kPackedPerPair +
           (kInt8 ? args.leaf_end - args.leaf_begin : 0);
  }
  FB_INLINE Packed* PackedTile(Rows tile) const {
    return packed + tile.begin * RowLength(args, schedule);
  }
  // Of a leaf, [rows] of fp32.
  FB_INLINE Packed* Scales(Rows tile, int leaf) const {
    return PackedTile(tile) +
           (int64_t{schedule.pairs} + leaf - args.leaf_begin) * (tile.end - tile.begin);
  }

  void PackTile(Rows tile) const {
    const int rows = static_cast<int>(tile.end - tile.begin);
    if constexpr (kInt8) {
      if (args.coded_x) {
        const uint32_t* x[kTileRows];
        for (int r = 0; r < rows; ++r)
          x[r] = reinterpret_cast<const uint32_t*>(XRow<1>(args, tile.begin + r));
        return Kernel::Join(x, rows, RowLength(args, schedule), PackedTile(tile));
      }
    }
    const LeafBorders& leaves = args.weight.leaves;
    constexpr int64_t kValues = kInt8 ? kQuadValues : 2;  // of a pair
    for (int i = 0; i < schedule.num_segments; ++i) {
      const LinearSegment& segment = schedule.segments[i];
      const int64_t begin = leaves.begin[segment.leaf] + kValues * segment.pair;
      const int64_t end = begin + kValues * segment.num_pairs,
                    leaf_end = leaves.begin[segment.leaf + 1];
      const T* x[kTileRows];
      for (int r = 0; r < rows; ++r)
        x[r] = reinterpret_cast<const T*>(XRow<sizeof(T)>(args, tile.begin + r)) + begin;
      Packed* out =
          PackedTile(tile) + static_cast<int64_t>(segment.x_pair) * Kernel::kPackedPerPair * rows;
      const int64_t elements = (end < leaf_end ? end : leaf_end) - begin;
      if constexpr (kInt8) {
        Packed* const scales = Scales(tile, segment.leaf);
        if (!segment.resume) Kernel::FindScales(x, rows, leaf_end - begin, scales);
        Kernel::Pack(x, rows, elements, scales, out);
      } else {
        Kernel::Pack(x, rows, elements, out);
      }
    }
  }

  // The register tiles whose number is in this part of all.
  void PackX(int64_t part, int64_t parts) const {
    int64_t total = 0;
    for (int block = 0; block < schedule.row_blocks; ++block) total += NumTiles(Block(block));
    const Rows mine = Part(total, part, parts);
    int64_t index = 0;
    for (int block = 0; block < schedule.row_blocks; ++block) {
      for (int64_t tile = 0; tile < NumTiles(Block(block)); ++tile, ++index) {
        if (mine.begin <= index && index < mine.end) PackTile(Tile(Block(block), tile));
      }
    }
  }

  static constexpr bool kMultipliesParts = !kInt8 && sizeof(T) == 2 && kHasMultiplyPart;
  static constexpr int64_t kPairBytes = kInt8 ? kQuadBytes : kPanelColumns * 2 * sizeof(T);

  FB_INLINE TileForm FormOf(int64_t panel) const {
    return args.weight.forms == nullptr ? args.weight.form : args.weight.forms[panel];
  }
  FB_INLINE const std::byte* TileOf(const LinearSegment& segment, int64_t panel) const {
    return args.weight.tiles[static_cast<int64_t>(segment.leaf) * args.weight.num_panels + panel];
  }
  // Of an expanded tile; of a stored one it is where to prefetch, roughly.
  FB_INLINE const std::byte* Weights(const LinearSegment& segment, int64_t panel) const {
    return TileOf(segment, panel) + segment.pair * kPairBytes;
  }

  // Segments that the register tiles of a row block pass together, of one panel; `next`: those to
  // come after them.
  struct SegmentGroup {
    int64_t panel;
    int first, last;
  };

  // Segment number `i` of a stored group; `next` is expanded after the group.
  FB_INLINE TilePart StoredPart(const SegmentGroup& group, const SegmentGroup& next, int i,
                                std::byte* out) const {
    const PackedWeight& weight = args.weight;
    const LinearSegment& segment = schedule.segments[i];
    const bool more = i + 1 < group.last;
    const LinearSegment& following = schedule.segments[more ? i + 1 : next.first];
    return {FormOf(group.panel),
            weight.dtype,
            TileOf(segment, group.panel),
            weight.first_k + weight.leaves.begin[segment.leaf],
            weight.first_k + weight.leaves.begin[segment.leaf + 1],
            segment.pair,
            segment.num_pairs,
            out,
            TileOf(following, more ? group.panel : next.panel),
            following.pair};
  }
  // Whether a single register tile multiplies a stored group as it lies.
  FB_INLINE bool MultipliesParts(const SegmentGroup& group) const {
    if (!kMultipliesParts) return false;
    for (int i = group.first; i < group.last; ++i) {
      if (!HasWholeLanes(StoredPart(group, group, i, nullptr))) return false;
    }
    return true;
  }

  // A stored group's weights, expanded.
  const std::byte* Expand(const SegmentGroup& group, const SegmentGroup& next) const {
    std::byte* const memory = ExpandedMemory(context);
    std::byte* out = memory;
    for (int i = group.first; i < group.last; ++i) {
      kExpand(StoredPart(group, next, i, out));
      out += schedule.segments[i].num_pairs * kPairBytes;
    }
    return memory;
  }

  // What a tile of `num_tiles` prefetches at a segment of the group.
  FB_INLINE Ahead AheadOf(const SegmentGroup& group, const SegmentGroup& next, int segment,
                          int64_t tile, int64_t num_tiles) const {
    if (num_tiles == 1) {
      const std::byte* following = segment + 1 < group.last
                                       ? Weights(schedule.segments[segment + 1], group.panel)
                                       : Weights(schedule.segments[next.first], next.panel);
      return {following, true, 0, 1};
    }
    int same = next.first + segment - group.first;
    if (same >= next.last) same = next.last - 1;
    return {Weights(schedule.segments[same], next.panel), false, static_cast<int>(tile),
            static_cast<int>(num_tiles)};
  }

  // After a leaf so many slots below the top are added, each to the sum so far.
  static void Merge(int rows, int merges, float* top) {
    for (; merges > 0; --merges, top -= kSlotFloats) {
      for (int i = 0; i < rows * kPanelColumns; i += kLanes)
        (Vector::Load(top - kSlotFloats + i) + Vector::Load(top + i)).Store(top - kSlotFloats + i);
    }
  }

  // `expanded`: what Expand gave; null: the weights are multiplied as they lie, `coded` or not.
  void RunTile(Rows tile, const SegmentGroup& group, const SegmentGroup& next,
               const std::byte* expanded, bool coded, int64_t index, int64_t num_tiles,
               float* stack) const {
    const int rows = static_cast<int>(tile.end - tile.begin);
    for (int i = group.first; i < group.last; ++i) {
      const LinearSegment& segment = schedule.segments[i];
      const Packed* x =
          PackedTile(tile) + static_cast<int64_t>(segment.x_pair) * Kernel::kPackedPerPair * rows;
      float* top = stack + segment.slot * kSlotFloats;
      if (segment.plane >= 0 && args.output == LinearOutput::kResidual)
        PrefetchY<T>(args, tile, group.panel);
      // Sums of codes are merged as numbers, at the end of their leaf.
      const Extent extent{segment.num_pairs, segment.resume, kInt8 ? 0 : segment.merges};
      if (expanded != nullptr) {  // in the cache
        Kernel::Run(rows, x, expanded, extent, top, {expanded, false, 0, 1});
        expanded += segment.num_pairs * kPairBytes;
      } else if (coded) {
        kMultiplyPart({StoredPart(group, next, i, nullptr), rows,
                       reinterpret_cast<const uint32_t*>(x), top, segment.resume});
        Merge(rows, segment.merges, top);
      } else {
        Kernel::Run(rows, x, Weights(segment, group.panel), extent, top,
                    AheadOf(group, next, i, index, num_tiles));
      }
      if constexpr (kInt8) {
        if (i + 1 == schedule.num_segments || !schedule.segments[i + 1].resume) {
          Kernel::FinishLeaf(rows, Scales(tile, segment.leaf),
                             Weights(segment, group.panel) + segment.num_pairs * kPairBytes,
                             segment.merges, top);
        }
      }
      if (segment.plane >= 0)
        FinishTile<T>(args, tile, group.panel, segment.plane, top - segment.merges * kSlotFloats);
    }
  }

  FB_INLINE SegmentGroup GroupFrom(int64_t panel, int first) const {
    int last = first;
    while (!schedule.segments[last++].group_end) {
    }
    return {panel, first, last};
  }

  // Register tiles of a row block through panels [panel, panel + count); count: 1 unless the block
  // is one tile.
  struct PanelRun {
    Rows block, tiles;
    int64_t panel, count;
  };

  // The first segment after the groups that finish the leaf in which segment `first` lies.
  FB_INLINE int LeafEnd(int first) const {
    int end = first;
    do {
      end = GroupFrom(0, end).last;
    } while (end < schedule.num_segments && schedule.segments[end].resume);
    return end;
  }

  // Leaf after leaf, in it panel after panel, as their tiles lie in memory.
  void RunPanels(const PanelRun& run, const PanelRun& following) const {
    const int64_t num_tiles = run.tiles.end - run.tiles.begin;
    // Tiles that pass several groups keep their stacks in between.
    const int64_t stack_stride = schedule.num_groups > 1 ? kStackSlots * kSlotFloats : 0;
    for (int begin = 0; begin < schedule.num_segments;) {
      const int end = LeafEnd(begin);
      const SegmentGroup after =
          end < schedule.num_segments ? GroupFrom(run.panel, end) : GroupFrom(following.panel, 0);
      for (int64_t i = 0; i < run.count; ++i) {
        for (int first = begin; first < end;) {
          const SegmentGroup here = GroupFrom(run.panel + i, first);
          const SegmentGroup next = here.last < end     ? GroupFrom(here.panel, here.last)
                                    : i + 1 < run.count ? GroupFrom(here.panel + 1, begin)
                                                        : after;
          const bool stored = !kInt8 && FormOf(here.panel) != TileForm::kExpanded;
          const bool in_place = !stored || (num_tiles == 1 && MultipliesParts(here));
          const std::byte* const expanded = in_place ? nullptr : Expand(here, next);
          for (int64_t tile = 0; tile < num_tiles; ++tile) {
            RunTile(Tile(run.block, run.tiles.begin + tile), here, next, expanded,
                    stored && in_place, tile, num_tiles, slots + (i + tile) * stack_stride);
          }
          first = here.last;
        }
      }
      begin = end;
    }
  }

  // One of `pieces` parts of `count` units from `unit` on.
  FB_INLINE PanelRun PanelRunOf(int64_t unit, int64_t count, int64_t piece, int64_t pieces) const {
    const Rows block = Block(unit / args.weight.num_panels);
    return {block, Part(NumTiles(block), piece, pieces), unit % args.weight.num_panels, count};
  }

  // What a worker has before it: units of its own, then open pieces of `shares_left` shares, those
  // of its own share first.
  struct Pending {
    Rows own;
    int share, shares_left;
  };
  FB_INLINE Pending PendingAtStart() const {
    const int share = context.worker * schedule.shares / context.num_workers;
    const LinearShare units = ShareOf(schedule, share, context.num_workers);
    // Workers of a share are neighbours in number, and so are the units of each: the same rows as
    // in the layer before.
    const Rows workers = Part(context.num_workers, share, schedule.shares);
    const Rows own =
        Part(units.open - units.begin, context.worker - workers.begin, workers.end - workers.begin);
    return {{units.begin + own.begin, units.begin + own.end}, share, schedule.shares};
  }

  // None: count 0. A worker first takes its own part of its share without a ticket, since its cache
  // has those rows of x. The end of each share is open to all by tickets, the worker's own share
  // first, so a delayed worker does not make the others wait. The tickets of all shares are fields
  // of one counter. A field counts on past the end of its share when workers come late, and has
  // room for that.
  PanelRun Take(Pending& pending) const {
    if (const int64_t left = pending.own.end - pending.own.begin; left > 0) {
      const int64_t count = left < schedule.batch_panels ? left : schedule.batch_panels;
      pending.own.begin += count;
      return PanelRunOf(pending.own.begin - count, count, 0, 1);
    }
    while (pending.shares_left > 0) {
      const LinearShare units = ShareOf(schedule, pending.share, context.num_workers);
      const int shift = kShareBits * pending.share;
      // One number for all shares: there is one counter an operation, which is zero at its begin.
      const int64_t tickets = context.ticket->fetch_add(int64_t{1} << shift);
      const int64_t ticket = (tickets >> shift) & ((int64_t{1} << kShareBits) - 1);
      const int64_t unit = units.open + ticket / schedule.open_pieces;
      if (unit < units.end)
        return PanelRunOf(unit, 1, ticket % schedule.open_pieces, schedule.open_pieces);
      pending.share = (pending.share + 1) % schedule.shares;
      --pending.shares_left;
    }
    return {};
  }

  // One run is taken ahead, to prefetch it.
  void Run(Pending pending) const {
    for (PanelRun run = Take(pending); run.count > 0;) {
      const PanelRun next = Take(pending);
      RunPanels(run, next.count > 0 ? next : run);
      run = next;
    }
  }
};

// Calls f<T, Kernel, kInt8>(args...) for what the layer is computed with.
#define FB_SWITCH_LINEAR(weight, Products, f, ...)                              \
  const bool is_bf16 = (weight).dtype == tensor::DType::kBF16;                  \
  if ((weight).forms == nullptr && (weight).form == TileForm::kW8A8) {          \
    if (is_bf16) return f<BF16, Int8Kernel<BF16, Products>, true>(__VA_ARGS__); \
    return f<float, Int8Kernel<float, Products>, true>(__VA_ARGS__);            \
  }                                                                             \
  if (is_bf16) return f<BF16, Micro<BF16>, false>(__VA_ARGS__);                 \
  return f<float, Micro<float>, false>(__VA_ARGS__)

template <typename T, typename Kernel, bool kInt8>
void RunLinearOf(const LinearArgs& args, const device::WorkerContext& context) {
  const LinearSchedule schedule = ScheduleLinear(args, context.num_workers);
  using Loop = LinearLoop<T, Kernel, kInt8>;
  float* slots = reinterpret_cast<float*>(context.scratch);
  const int64_t packed_bytes = args.rows * Loop::RowLength(args, schedule) *
                               static_cast<int64_t>(sizeof(typename Loop::Packed));
  // Few rows are packed by each worker for itself, so that none waits for another's part.
  if (packed_bytes <= kOwnPackedBytes) {
    std::byte* own = context.scratch + kSumsBytes;
    const Loop loop{args, schedule, context, reinterpret_cast<typename Loop::Packed*>(own), slots};
    loop.PackX(0, 1);
    loop.Run(loop.PendingAtStart());
  } else {
    const Loop loop{args, schedule, context,
                    reinterpret_cast<typename Loop::Packed*>(args.workspace), slots};
    loop.PackX(context.worker, context.num_workers);
    context.Barrier();
    loop.Run(loop.PendingAtStart());
  }
}

template <typename Products>
void RunLinear(const LinearArgs& args, const device::WorkerContext& context) {
  FB_SWITCH_LINEAR(args.weight, Products, RunLinearOf, args, context);
}

}  // namespace
}  // namespace forebay::kernels
