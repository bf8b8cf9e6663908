// Which units and tiles a step's rows are (params.h): by one block, since there are some hundred
// sequences at most. It reads them where the host wrote them, once.
//
// Bytes: the sequences, the lists. Limit: a few latencies.
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/mma/params.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kPartPositions = 1024;

FB_DEVICE int Ceil(int a, int b) { return (a + b - 1) / b; }

// What a sequence is.
struct Listed {
  int first, parts, units, tiles;  // of units: the first position that is seen

  FB_DEVICE Listed(const AttentionListParams& args, const SequenceRows& rows)
      : first(0), parts(0), units(0), tiles(0) {
    if (rows.num_rows > 1) {
      tiles = args.tiles != nullptr ? Ceil(rows.num_rows, kPrefillRows) : 0;
      return;
    }
    const int last = rows.first_position;
    if (args.reach_window > 0 && last >= args.reach_window) first = last - args.reach_window + 1;
    if (args.reach_window <= 0 && args.reach_chunk > 0) first = last - last % args.reach_chunk;
    parts = last / kPartPositions - first / kPartPositions + 1;
    units = parts * args.kv_heads;
  }
};

FB_DEVICE void WriteUnits(const AttentionListParams& args, const SequenceRows& rows,
                          const Listed& listed, int at) {
  const int first_part = listed.first / kPartPositions, behind = rows.first_position + 1;
  for (int i = 0; i < listed.units; ++i) {
    const int part = i % listed.parts, begin = (first_part + part) * kPartPositions;
    const int end = begin + kPartPositions;
    args.units[at + i] = {.row = rows.first_row,
                          .table_row = rows.table_row,
                          .kv_head = i / listed.parts,
                          .part = part,
                          .parts = listed.parts,
                          .first = listed.first > begin ? listed.first : begin,
                          .end = behind < end ? behind : end,
                          .slot = at + i - part};
    args.counts[at + i] = 0;
  }
}

FB_DEVICE void WriteTiles(const AttentionListParams& args, const SequenceRows& rows, int tiles,
                          int at) {
  for (int i = 0; i < tiles; ++i) {
    const int row = i * kPrefillRows, left = rows.num_rows - row;
    args.tiles[at + i] = {.row = rows.first_row + row,
                          .rows = left < kPrefillRows ? left : kPrefillRows,
                          .table_row = rows.table_row,
                          .first_position = rows.first_position + row,
                          .end = rows.first_position + rows.num_rows};
  }
}

}  // namespace

FB_KERNEL(mma_attention_lists, AttentionListParams, kListThreads) {
  FB_SHARED(int32_t, shared);  // units, then tiles, of each thread
  int32_t* const tiles_of = shared + kListThreads;
  int units = 0, tiles = 0;  // of this thread's sequences, which are neighbours
  const int each = Ceil(args.num_sequences, kListThreads), first = gpu::Tid() * each;
  const int end = first + each < args.num_sequences ? first + each : args.num_sequences;
  for (int s = first; s < end; ++s) {
    const Listed listed(args, args.sequences[s]);
    units += listed.units;
    tiles += listed.tiles;
  }
  shared[gpu::Tid()] = units;
  tiles_of[gpu::Tid()] = tiles;
  gpu::Sync();
  int unit = 0, tile = 0, all_units = 0, all_tiles = 0;
  for (int i = 0; i < kListThreads; ++i) {
    if (i == gpu::Tid()) unit = all_units, tile = all_tiles;
    all_units += shared[i];
    all_tiles += tiles_of[i];
  }
  const bool fits = all_units <= args.most_units;
  for (int s = first; s < end; ++s) {
    const SequenceRows rows = args.sequences[s];
    const Listed listed(args, rows);
    if (fits) WriteUnits(args, rows, listed, unit);
    WriteTiles(args, rows, listed.tiles, tile);
    unit += listed.units;
    tile += listed.tiles;
  }
  if (gpu::Tid() != 0) return;
  args.totals[0] = fits ? all_units : 0;
  args.totals[1] = all_tiles;
  args.totals[2] = fits ? 1 : 0;
}

}  // namespace forebay::kernels::cuda
