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
//   rows -> row blocks -> row tiles of 16            K -> leaves -> steps of 32 -> rounds
//
// A unit of work is (row block, panels), blocks outermost, of as few blocks as 256 rows allow: each
// passes all weights through the cache again, and tiles multiply faster than memory reads. Round by
// round, two row tiles at a time pass the panel: leaf by leaf, half of its columns after the other,
// so that 4 loads serve 4 products; a row tile alone passes all columns, from 5 loads. Any number
// of rows goes through the same steps; the rows that fill up a tile are zero and their sums are
// left.
//
// One round has all of K, and the sums of two row tiles wait for their leaves in the first cache.
// There are several rounds, and sums wait in the second cache in between,
//   - where tiles are stored: a round's weights are expanded into the worker's scratch by the set's
//     `constexpr ExpandFunction kExpand`;
//   - where the block's x leaves the second cache: a round of x stays there for several panels.
//
// Three things are done beside the products, some after each step, so that they hide behind the
// tiles: the weights to come are fetched, those of the next round are expanded, and the sums that
// the run before has stored are added to their leaves and go to y. A vector that is read right
// after a tile's store of it would wait for the store.
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
constexpr int64_t kBlockTiles = kMaxBlockRows / kTileHeight;
constexpr int64_t kStacksBytes =
    kBlockTiles * kStackSlots * kTileFloats * static_cast<int64_t>(sizeof(float));
static_assert(kStacksBytes + kStepBytes <= kSumsBytes);

// A round of stored weights: another one is expanded meanwhile.
constexpr int64_t kExpandedSteps = kMostGroupBytes / 2 / kStepBytes;
// Where x of a block is more than this, rounds of it pass so many panels.
constexpr int64_t kCachedXBytes = 3 << 19;
constexpr int64_t kCachedXSteps = 16, kCachedXPanels = kStackSlots;

// Weights that nothing has fetched yet are prefetched so far ahead: a guess, until this loop runs
// on hardware.
constexpr int64_t kTileStreamBytes = 8192;

FB_INLINE int64_t StepsOf(const LeafBorders& leaves, int leaf) {
  return (leaves.begin[leaf + 1] - leaves.begin[leaf] + kTileDepth - 1) / kTileDepth;
}

// Sums of codes have no order, and no tiles yet.
FB_INLINE bool IsInt8(const PackedWeight& weight) {
  return weight.forms == nullptr && weight.form == TileForm::kW8A8;
}

template <typename Tiles>
class TileLoop {
 public:
  // With packed x in args.workspace. A unit has up to `most_panels` panels.
  FB_INLINE TileLoop(const LinearArgs& args, const LinearSchedule& schedule,
                     const device::WorkerContext& context, int64_t most_panels)
      : args_(args),
        context_(context),
        x_rows_(args.rows < kTileHeight ? args.rows : kTileHeight),
        num_tiles_((args.rows + kTileHeight - 1) / kTileHeight),
        row_blocks_((num_tiles_ + kBlockTiles - 1) / kBlockTiles),
        packed_(reinterpret_cast<BF16*>(args.workspace)),
        stacks_(reinterpret_cast<float*>(context.scratch)),
        tail_(context.scratch + kStacksBytes) {
    for (int i = 0; i < schedule.num_segments; ++i) {
      // a leaf is one run here: its last segment says what follows
      if (i + 1 < schedule.num_segments && schedule.segments[i + 1].resume) continue;
      const LinearSegment& last = schedule.segments[i];
      leaves_[num_leaves_++] = {last.leaf,   last.slot,
                                last.merges, last.plane,
                                steps_,      steps_ + StepsOf(args.weight.leaves, last.leaf)};
      steps_ = leaves_[num_leaves_ - 1].end;
    }
    round_steps_ = steps_;
    stack_floats_ = (num_leaves_ > 1 ? kStackSlots : 1) * kTileFloats;
    const int64_t block_tiles = num_tiles_ < kBlockTiles ? num_tiles_ : kBlockTiles;
    if (args.weight.has_stored_tiles()) {
      expanded_ = ExpandedMemory(context);
      round_steps_ = kExpandedSteps;
    } else if (num_leaves_ == 1 && most_panels >= kCachedXPanels &&
               block_tiles * PackedTileElements() * static_cast<int64_t>(sizeof(BF16)) >
                   kCachedXBytes) {
      round_steps_ = kCachedXSteps;
      unit_panels_ = kCachedXPanels;
    }
    groups_ = (args.weight.num_panels + unit_panels_ - 1) / unit_panels_;
  }

  FB_INLINE int64_t PackedBytes() const {
    return num_tiles_ * PackedTileElements() * static_cast<int64_t>(sizeof(BF16));
  }
  FB_INLINE void UsePacked(std::byte* memory) { packed_ = reinterpret_cast<BF16*>(memory); }
  FB_INLINE int64_t units() const { return row_blocks_ * groups_; }

  void PackX(int64_t part, int64_t parts) const {
    const Rows mine = Part(num_tiles_, part, parts);
    for (int64_t tile = mine.begin; tile < mine.end; ++tile) PackTile(tile);
  }

  // The units `mine` first, then those from `open` on that the tickets give; one ahead, to prefetch
  // it.
  void Run(Rows mine, int64_t open) {
    const auto take = [&]() __attribute__((always_inline)) {
      if (mine.begin < mine.end) return UnitOf(mine.begin++);
      return UnitOf(open < units() ? open + context_.ticket->fetch_add(1) : units());
    };
    Unit unit = take();
    if (unit.panels == 0) return;
    Tiles tiles(x_rows_);
    while (unit.panels > 0) {
      const Unit next = take();
      RunUnit(tiles, unit, next);
      unit = next;
    }
    CloseAll();
    tiles.Release();
  }

 private:
  // A leaf's sums and its steps among all.
  struct Leaf {
    int leaf;
    int8_t slot, merges, plane;  // as LinearSegment
    int64_t begin, end;
  };
  struct Unit {
    Rows block;  // the row tiles of one block
    int64_t panel = 0, panels = 0;
  };
  // A panel's steps [begin, end); panel < 0: none.
  struct Round {
    int64_t panel, begin, end;
  };

  FB_INLINE int64_t PackedTileElements() const { return steps_ * x_rows_ * kTileDepth; }

  // [steps][x_rows][32]
  void PackTile(int64_t tile) const {
    const LeafBorders& leaves = args_.weight.leaves;
    BF16* out = packed_ + tile * PackedTileElements();
    for (int leaf = args_.leaf_begin; leaf < args_.leaf_end; ++leaf) {
      for (int64_t k = leaves.begin[leaf]; k < leaves.begin[leaf + 1]; k += kTileDepth) {
        const int64_t left = leaves.begin[leaf + 1] - k;
        const int64_t elements = left < kTileDepth ? left : kTileDepth;
        for (int64_t row = tile * kTileHeight; row < tile * kTileHeight + x_rows_;
             ++row, out += kTileDepth) {
          const BF16* x = row < args_.rows
                              ? reinterpret_cast<const BF16*>(XRow<sizeof(BF16)>(args_, row)) + k
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

  FB_INLINE Unit UnitOf(int64_t unit) const {
    if (unit >= units()) return {};
    const int64_t panel = unit % groups_ * unit_panels_, left = args_.weight.num_panels - panel;
    return {Part(num_tiles_, unit / groups_, row_blocks_), panel,
            left < unit_panels_ ? left : unit_panels_};
  }
  FB_INLINE int64_t RoundEnd(int64_t begin) const {
    return steps_ - begin < round_steps_ ? steps_ : begin + round_steps_;
  }
  FB_INLINE Round After(const Unit& unit, const Unit& next, const Round& round) const {
    if (round.panel + 1 < unit.panel + unit.panels)
      return {round.panel + 1, round.begin, round.end};
    if (round.end < steps_) return {unit.panel, round.end, RoundEnd(round.end)};
    if (next.panels == 0) return {-1, 0, 0};
    return {next.panel, 0, RoundEnd(0)};
  }

  FB_INLINE const std::byte* TileOf(int leaf, int64_t panel) const {
    return args_.weight.tiles[static_cast<int64_t>(leaf) * args_.weight.num_panels + panel];
  }
  FB_INLINE int64_t LeafPairs(const Leaf& leaf) const {
    const LeafBorders& leaves = args_.weight.leaves;
    return (leaves.begin[leaf.leaf + 1] - leaves.begin[leaf.leaf] + 1) / 2;
  }
  FB_INLINE TileForm FormOf(int64_t panel) const {
    return args_.weight.forms == nullptr ? args_.weight.form : args_.weight.forms[panel];
  }
  FB_INLINE bool IsStored(int64_t panel) const {
    return expanded_ != nullptr && FormOf(panel) != TileForm::kExpanded;
  }
  // Where the round's weights of a step lie, to fetch them; null: they are codes, or there is no
  // round.
  FB_INLINE const std::byte* PlaceOf(const Round& round, int64_t step) const {
    if (round.panel < 0 || IsStored(round.panel)) return nullptr;
    int i = 0;
    while (i + 1 < num_leaves_ && step >= leaves_[i].end) ++i;
    return TileOf(leaves_[i].leaf, round.panel) + (step - leaves_[i].begin) * kStepBytes;
  }

  // ---- the weights of a run: steps of a leaf, the last one filled up where K is no multiple of 32
  struct RunWeights {
    const std::byte* whole;  // the run's first step
    const std::byte* tail;
    int64_t steps, whole_steps;

    FB_INLINE const std::byte* At(int64_t step) const {
      return step < whole_steps ? whole + step * kStepBytes : tail;
    }
  };
  FB_INLINE RunWeights WeightsOf(const Leaf& leaf, const Round& round, int64_t begin, int64_t end) {
    const int64_t steps = end - begin;
    if (IsStored(round.panel))
      return {Buffer(filled_) + (begin - round.begin) * kStepBytes, nullptr, steps, steps};
    const std::byte* const tile = TileOf(leaf.leaf, round.panel);
    const int64_t pairs = LeafPairs(leaf), whole = leaf.begin + pairs / kStepPairs;
    if (end > whole && (tail_leaf_ != leaf.leaf || tail_panel_ != round.panel)) {
      const int64_t from = pairs / kStepPairs * kStepPairs;
      __builtin_memset(tail_, 0, kStepBytes);
      __builtin_memcpy(tail_, tile + from * kPairBytes,
                       static_cast<size_t>((pairs - from) * kPairBytes));
      tail_leaf_ = leaf.leaf, tail_panel_ = round.panel;
    }
    return {tile + (begin - leaf.begin) * kStepBytes, tail_, steps,
            end < whole ? steps : whole - begin};
  }

  FB_INLINE std::byte* Buffer(int i) const { return expanded_ + i * kExpandedSteps * kStepBytes; }

  // Expands up to `steps` steps of the round that comes next.
  void Fill(int64_t steps) {
    while (steps > 0 && filling_.begin < filling_.end) {
      int i = 0;
      while (filling_.begin >= leaves_[i].end) ++i;
      const Leaf& leaf = leaves_[i];
      int64_t end = filling_.begin + steps;
      end = end < filling_.end ? end : filling_.end;
      end = end < leaf.end ? end : leaf.end;
      const int64_t pair = (filling_.begin - leaf.begin) * kStepPairs,
                    all = (end - filling_.begin) * kStepPairs, left = LeafPairs(leaf) - pair,
                    count = all < left ? all : left;
      std::byte* const out = Buffer(1 - filled_) + (filling_.begin - fill_base_) * kStepBytes;
      const PackedWeight& weight = args_.weight;
      kExpand({FormOf(filling_.panel), weight.dtype, TileOf(leaf.leaf, filling_.panel),
               weight.first_k + weight.leaves.begin[leaf.leaf],
               weight.first_k + weight.leaves.begin[leaf.leaf + 1], pair, count, out});
      __builtin_memset(out + count * kPairBytes, 0,
                       static_cast<size_t>((all - count) * kPairBytes));
      steps -= end - filling_.begin;
      filling_.begin = end;
    }
  }
  void BeginFill(const Round& round) {
    filling_ = {-1, 0, 0};
    if (round.panel >= 0 && IsStored(round.panel)) filling_ = round;
    fill_base_ = filling_.begin;
  }

  // ---- beside the products
  // Walks over weights that are needed later, some bytes a step.
  struct Fetch {
    const char* line = nullptr;
    int64_t step_bytes = 0;

    FB_INLINE void Step() {
      for (const char* const end = line + step_bytes; line < end; line += 64)
        _mm_prefetch(line, _MM_HINT_T1);
    }
  };
  // Sums of a leaf, of rows [row, end) still, that are to be added to what waits below and then go
  // to y, where the output is complete.
  struct Closing {
    int64_t row = 0, end = 0, first_row = 0;
    int64_t panel = 0;
    int merges = 0, plane = -1;
    float* top = nullptr;
  };

  void CloseRows(int64_t most) {
    Closing& c = closing_;
    while (most > 0 && c.row < c.end) {
      const int64_t offset = c.row - c.first_row, tile_left = kTileHeight - offset % kTileHeight;
      int64_t take = c.end - c.row < tile_left ? c.end - c.row : tile_left;
      take = take < most ? take : most;
      float* const top =
          c.top + offset / kTileHeight * stack_floats_ + offset % kTileHeight * kPanelColumns;
      float* const out = top - c.merges * kTileFloats;
      if (c.merges > 0) {
        for (int64_t i = 0; i < take * kPanelColumns; i += kLanes) {
          Vector sum = Vector::Load(top + i);
          for (int merge = 1; merge <= c.merges; ++merge)
            sum = Vector::Load(top - merge * kTileFloats + i) + sum;
          sum.Store(out + i);
        }
      }
      if (c.plane >= 0) FinishTile<BF16>(args_, {c.row, c.row + take}, c.panel, c.plane, out);
      c.row += take;
      most -= take;
    }
  }
  FB_INLINE void CloseAll() { CloseRows(closing_.end - closing_.row); }
  // REQUIRES: nothing is left to close.
  FB_INLINE void BeginClose(const Leaf& leaf, int64_t panel, Rows tiles, float* stack) {
    const int64_t first = tiles.begin * kTileHeight, end = tiles.end * kTileHeight;
    closing_ = {first,      end < args_.rows ? end : args_.rows, first, panel, leaf.merges,
                leaf.plane, stack + leaf.slot * kTileFloats};
    if (leaf.plane >= 0 && args_.output == LinearOutput::kResidual)
      PrefetchY<BF16>(args_, {closing_.row, closing_.end}, panel);
  }

  // What is done after a step's products.
  struct Beside {
    Fetch fetch;
    int64_t turn = -1;  // at this step fetch goes on at `next`
    const std::byte* next = nullptr;
    int64_t close_rows = 0;  // a step
  };
  FB_INLINE void AfterStep(Beside& beside, int64_t step) {
    if (step == beside.turn) beside.fetch.line = reinterpret_cast<const char*>(beside.next);
    beside.fetch.Step();
    if (step > 0 && closing_.row < closing_.end) CloseRows(beside.close_rows);
    if (filling_.begin < filling_.end) {
      fill_credit_ += fill_steps_;
      if (fill_credit_ >= product_steps_) {
        Fill(fill_credit_ / product_steps_);
        fill_credit_ %= product_steps_;
      }
    }
  }

  // How the sums of a run begin: at zero, or where those of the steps before ended.
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
  FB_INLINE void EndSums(Tiles& tiles, float* s0, float* s1, float* s2, float* s3) {
    CloseAll();  // the sums before may lie in the same place
    tiles.template Store<0>(s0, kSumsStride);
    tiles.template Store<1>(s1, kSumsStride);
    tiles.template Store<2>(s2, kSumsStride);
    tiles.template Store<3>(s3, kSumsStride);
  }

  // Two row tiles by half of the panel's columns.
  FB_INLINE void RunTwo(Tiles& tiles, const BF16* x, const RunWeights& weights, bool resume,
                        int half, float* sums, Beside beside) {
    const int64_t x_bytes = kTileDepth * sizeof(BF16), offset = half * 2 * x_bytes;
    const BF16* x1 = x + PackedTileElements();
    float* const s0 = sums + half * 2 * kTileHeight;
    float* const s2 = s0 + stack_floats_;
    BeginSums(tiles, resume, s0, s0 + kTileHeight, s2, s2 + kTileHeight);
    for (int64_t step = 0; step < weights.steps;
         ++step, x += kTileHeight * kTileDepth, x1 += kTileHeight * kTileDepth) {
      const std::byte* w = weights.At(step) + offset;
      tiles.template Load<6>(w, kPairBytes);
      tiles.template Load<4>(x, x_bytes);
      tiles.template MultiplyAdd<0, 4, 6>();
      tiles.template Load<7>(w + x_bytes, kPairBytes);
      tiles.template MultiplyAdd<1, 4, 7>();
      tiles.template Load<5>(x1, x_bytes);
      tiles.template MultiplyAdd<2, 5, 6>();
      tiles.template MultiplyAdd<3, 5, 7>();
      AfterStep(beside, step);
    }
    EndSums(tiles, s0, s0 + kTileHeight, s2, s2 + kTileHeight);
  }

  // A row tile by all columns.
  FB_INLINE void RunOne(Tiles& tiles, const BF16* x, const RunWeights& weights, bool resume,
                        float* sums, Beside beside) {
    const int64_t x_bytes = kTileDepth * sizeof(BF16),
                  x_step = static_cast<int64_t>(x_rows_) * kTileDepth;
    BeginSums(tiles, resume, sums, sums + kTileHeight, sums + 2 * kTileHeight,
              sums + 3 * kTileHeight);
    for (int64_t step = 0; step < weights.steps; ++step, x += x_step) {
      const std::byte* w = weights.At(step);
      tiles.template Load<4>(x, x_bytes);
      tiles.template Load<5>(w, kPairBytes);
      tiles.template MultiplyAdd<0, 4, 5>();
      tiles.template Load<6>(w + x_bytes, kPairBytes);
      tiles.template MultiplyAdd<1, 4, 6>();
      tiles.template Load<7>(w + 2 * x_bytes, kPairBytes);
      tiles.template MultiplyAdd<2, 4, 7>();
      tiles.template Load<5>(w + 3 * x_bytes, kPairBytes);
      tiles.template MultiplyAdd<3, 4, 5>();
      AfterStep(beside, step);
    }
    EndSums(tiles, sums, sums + kTileHeight, sums + 2 * kTileHeight, sums + 3 * kTileHeight);
  }

  // Two row tiles, or the last one alone, through the steps [begin, end) of a leaf. `runs`: of
  // halves of columns, this one's first is number `run`; `after`: where the weights lie that the
  // runs fetch together, or, where there is one pair of row tiles, that follow the run's own.
  FB_INLINE void RunLeaf(Tiles& tiles, const Leaf& leaf, const Round& round, Rows pair,
                         float* stack, int64_t run, int64_t runs, const std::byte* after) {
    const int64_t begin = leaf.begin > round.begin ? leaf.begin : round.begin,
                  end = leaf.end < round.end ? leaf.end : round.end;
    const RunWeights weights = WeightsOf(leaf, round, begin, end);
    const BF16* const x =
        packed_ + pair.begin * PackedTileElements() + begin * x_rows_ * kTileDepth;
    float* const sums = stack + leaf.slot * kTileFloats;
    const bool resume = begin > leaf.begin, alone = pair.end - pair.begin == 1;
    for (int half = 0; half < (alone ? 1 : 2); ++half) {
      Beside beside;
      if (runs > 2) {  // they share the fetching of what comes next
        const int64_t share = alone ? 2 : 1;
        if (after != nullptr) {
          beside.fetch = {reinterpret_cast<const char*>(after) +
                              weights.steps * kStepBytes * (run + half) / runs / 64 * 64,
                          kStepBytes * share / runs};
        }
      } else if (half == 0 && !IsStored(round.panel)) {  // one run streams its own from memory
        beside.fetch = {reinterpret_cast<const char*>(weights.whole) + kTileStreamBytes,
                        kStepBytes};
        beside.next = after;
        if (after != nullptr) beside.turn = weights.whole_steps > 2 ? weights.whole_steps - 2 : 0;
      }
      const int64_t spread = weights.steps > 1 ? weights.steps - 1 : 1;
      beside.close_rows = (closing_.end - closing_.row + spread - 1) / spread;
      if (alone) {
        RunOne(tiles, x, weights, resume, sums, beside);
      } else {
        RunTwo(tiles, x, weights, resume, half, sums, beside);
      }
    }
    if (end == leaf.end) BeginClose(leaf, round.panel, pair, stack);
  }

  // All row tiles of the unit's block through a round; `after`: the round to come.
  void RunRound(Tiles& tiles, const Unit& unit, const Round& round, const Round& after) {
    if (IsStored(round.panel)) {
      if (filling_.panel < 0) BeginFill(round);  // the first one of all
      Fill(kExpandedSteps);                      // what is left of it
      filled_ = 1 - filled_;
    }
    const int64_t block = unit.block.end - unit.block.begin, pairs = (block + 1) / 2;
    BeginFill(after);
    fill_steps_ = filling_.end - filling_.begin;
    product_steps_ = (round.end - round.begin) * block;
    fill_credit_ = 0;
    const bool one_round = round_steps_ >= steps_;
    for (int64_t tile = unit.block.begin; tile < unit.block.end; tile += 2) {
      const Rows pair{tile, tile + 2 < unit.block.end ? tile + 2 : unit.block.end};
      const int64_t place =
          one_round ? 0 : (round.panel - unit.panel) * block + tile - unit.block.begin;
      for (int i = 0; i < num_leaves_; ++i) {
        const Leaf& leaf = leaves_[i];
        if (leaf.end <= round.begin || leaf.begin >= round.end) continue;
        const int64_t first = leaf.begin > round.begin ? leaf.begin : round.begin;
        const std::byte* next = PlaceOf(after, after.begin + first - round.begin);
        if (pairs == 1)
          next = leaf.end < round.end ? PlaceOf(round, leaf.end) : PlaceOf(after, after.begin);
        RunLeaf(tiles, leaf, round, pair, stacks_ + place * stack_floats_, tile - unit.block.begin,
                2 * pairs, next);
      }
    }
  }

  void RunUnit(Tiles& tiles, const Unit& unit, const Unit& next) {
    for (int64_t begin = 0; begin < steps_; begin = RoundEnd(begin)) {
      for (int64_t panel = unit.panel; panel < unit.panel + unit.panels; ++panel) {
        const Round round{panel, begin, RoundEnd(begin)};
        RunRound(tiles, unit, round, After(unit, next, round));
      }
    }
  }

  const LinearArgs& args_;
  const device::WorkerContext& context_;
  const int x_rows_;  // a row tile's rows in packed x: all if they are fewer than 16
  const int64_t num_tiles_, row_blocks_;
  BF16* packed_;                   // [row tiles][steps][x_rows][32]
  float* stacks_;                  // of the row tiles, and panels, whose sums wait
  std::byte* tail_;                // a step of weights
  std::byte* expanded_ = nullptr;  // two rounds of stored weights
  Leaf leaves_[kMaxLeaves];
  int num_leaves_ = 0;
  int64_t steps_ = 0;  // of all leaves
  int64_t round_steps_, stack_floats_, unit_panels_ = 1, groups_;
  int tail_leaf_ = -1;  // what the tail has
  int64_t tail_panel_ = -1;
  int filled_ = 1;           // the buffer of the round that is multiplied
  Round filling_{-1, 0, 0};  // what is still to be expanded of the next one
  int64_t fill_base_ = 0, fill_steps_ = 0, product_steps_ = 1, fill_credit_ = 0;
  Closing closing_;
};

template <typename Tiles>
FB_INLINE void RunTileLinear(const LinearArgs& args, const device::WorkerContext& context) {
  const LinearSchedule schedule = ScheduleLinear(args, context.num_workers);
  // Several panels a unit where each worker gets some units.
  const int64_t most_panels = args.weight.num_panels / (2 * context.num_workers);
  TileLoop<Tiles> loop(args, schedule, context, most_panels);
  if (loop.PackedBytes() <= kOwnPackedBytes) {
    loop.UsePacked(context.scratch + kSumsBytes);
    loop.PackX(0, 1);
  } else {
    loop.PackX(context.worker, context.num_workers);
    context.Barrier();
  }
  // A worker's own part first, then the open ones.
  const int64_t open = context.num_workers == 1 ? loop.units() : loop.units() - loop.units() / 8;
  loop.Run(Part(open, context.worker, context.num_workers), open);
}

// As experts_loop.h.
template <typename Tiles>
FB_INLINE void RunTileExperts(const ExpertsArgs& args, const device::WorkerContext& context) {
  ExpertWalk walk(args, context, kMaxBlockRows);
  ExpertPiece piece;
  while (walk.Next(&piece)) {
    const LinearSchedule schedule = ScheduleLinear(piece.layer, 1);
    TileLoop<Tiles> loop(piece.layer, schedule, context, 1);
    if (!piece.same_rows) loop.PackX(0, 1);
    loop.Run({piece.first_panel, piece.last_panel}, loop.units());
  }
}

}  // namespace
}  // namespace forebay::kernels
