// Which units and tiles a step's rows are (params.h), long ones first: by one block, since there
// are some hundred sequences at most. It reads them where the host wrote them, twice.
//
// Bytes: the sequences, the lists. Limit: a few latencies.
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/mma/params.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kPartPositions = 1024, kStepPositions = 128;

FB_DEVICE int Ceil(int a, int b) { return (a + b - 1) / b; }

// Lists of units, the longest first, then those of tiles.
constexpr int kUnitLists = kPartPositions / kStepPositions;
FB_DEVICE int ListOf(const DecodeUnit& unit) {
  return kUnitLists - Ceil(unit.end - unit.first, kStepPositions);
}
// By the power of two of its steps.
FB_DEVICE int ListOf(const PrefillTile& tile) {
  int steps = Ceil(tile.first_position + tile.rows, kStepPositions), list = kListsOfStep - 1;
  for (; steps > 1 && list > kUnitLists; steps /= 2) --list;
  return list;
}

// Calls unit(unit) or tile(tile) for what a sequence is. Units count slots from `slot` on.
template <typename OnUnit, typename OnTile>
FB_DEVICE void ForEach(const AttentionListParams& args, const SequenceRows& rows, int slot,
                       OnUnit on_unit, OnTile on_tile) {
  if (rows.num_rows > 1) {
    for (int row = 0; row < rows.num_rows && args.tiles != nullptr; row += kPrefillRows) {
      const int left = rows.num_rows - row;
      on_tile(PrefillTile{.row = rows.first_row + row,
                          .rows = left < kPrefillRows ? left : kPrefillRows,
                          .table_row = rows.table_row,
                          .first_position = rows.first_position + row,
                          .end = rows.first_position + rows.num_rows});
    }
    return;
  }
  const int last = rows.first_position;
  int first = 0;  // position that is seen
  if (args.reach_window > 0 && last >= args.reach_window) first = last - args.reach_window + 1;
  if (args.reach_window <= 0 && args.reach_chunk > 0) first = last - last % args.reach_chunk;
  const int first_part = first / kPartPositions, parts = last / kPartPositions - first_part + 1;
  for (int i = 0; i < parts * args.kv_heads; ++i) {
    const int part = i % parts, begin = (first_part + part) * kPartPositions;
    const int end = begin + kPartPositions;
    on_unit(DecodeUnit{.row = rows.first_row,
                       .table_row = rows.table_row,
                       .kv_head = i / parts,
                       .part = part,
                       .parts = parts,
                       .first = first > begin ? first : begin,
                       .end = last + 1 < end ? last + 1 : end,
                       .slot = slot + i - part});
  }
}

// The warp's list: of numbers of each thread, those of the threads before it. Returns all.
FB_DEVICE int SumBefore(int32_t* of_thread) {
  constexpr int kOfLane = kListThreads / gpu::kWarpLanes;
  int32_t* const mine = of_thread + gpu::Lane() * kOfLane;
  int sum = 0;
  for (int i = 0; i < kOfLane; ++i) sum += mine[i];
  int upto = sum;
  for (int apart = 1; apart < gpu::kWarpLanes; apart *= 2) {
    const int other = gpu::Shuffle(upto, (gpu::Lane() - apart) & (gpu::kWarpLanes - 1));
    if (gpu::Lane() >= apart) upto += other;
  }
  int before = upto - sum;
  for (int i = 0; i < kOfLane; ++i) {
    const int number = mine[i];
    mine[i] = before;
    before += number;
  }
  return gpu::Shuffle(upto, gpu::kWarpLanes - 1);
}

}  // namespace

FB_KERNEL(mma_attention_lists, AttentionListParams, kListThreads) {
  FB_SHARED(int32_t, shared);
  gpu::TakeTurn();
  int32_t* const of_thread = shared + gpu::Tid();  // [list][thread]: numbers, then places
  int32_t* const begins = shared + kListsOfStep * kListThreads;  // [list], of all behind them
  const int each = Ceil(args.num_sequences, kListThreads), first = gpu::Tid() * each;
  const int end = first + each < args.num_sequences ? first + each : args.num_sequences;
  for (int list = 0; list < kListsOfStep; ++list) of_thread[list * kListThreads] = 0;
  const auto count = [&](const auto& item) { ++of_thread[ListOf(item) * kListThreads]; };
  for (int s = first; s < end; ++s) ForEach(args, args.sequences[s], 0, count, count);
  gpu::Sync();
  for (int list = gpu::Warp(); list < kListsOfStep; list += gpu::Warps()) {
    const int all = SumBefore(shared + list * kListThreads);
    if (gpu::Lane() == 0) begins[list + 1] = all;
  }
  gpu::Sync();
  int all_units = 0, all_tiles = 0, slot = 0;
  for (int list = 0; list < kListsOfStep; ++list) {
    const bool units = list < kUnitLists;
    int32_t& place = of_thread[list * kListThreads];
    if (units) slot += place;
    int& before = units ? all_units : all_tiles;
    place += before;
    before += begins[list + 1];
  }
  const bool fits = all_units <= args.most_units;
  for (int s = first; s < end; ++s) {
    ForEach(
        args, args.sequences[s], slot,
        [&](const DecodeUnit& unit) {
          ++slot;
          const int at = of_thread[ListOf(unit) * kListThreads]++;
          if (!fits) return;
          args.units[at] = unit;
          args.counts[at] = 0;
        },
        [&](const PrefillTile& tile) {
          args.tiles[of_thread[ListOf(tile) * kListThreads]++] = tile;
        });
  }
  if (gpu::Tid() != 0) return;
  args.totals[0] = fits ? all_units : 0;
  args.totals[1] = all_tiles;
  args.totals[2] = fits ? 1 : 0;
}

}  // namespace forebay::kernels::cuda
