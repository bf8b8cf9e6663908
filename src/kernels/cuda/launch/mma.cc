#include "kernels/cuda/launch/mma.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "kernels/kv_layout.h"
#include "kernels/mma_attention.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kSharedBytes = 227 << 10;  // that a block may have
// Where the next kernel's block shall start beside this one's.
constexpr int kHalfSharedBytes = 110 << 10;
constexpr int kStageBytes = 48 << 10;   // as fast as larger ones; half of it costs 10 %
constexpr int kCopiesOfStage = 4 * 32;  // what the lanes of the producer hold
constexpr int kTurnedBytes = kSmallConsumers * 256, kBarrierBytes = 8;

constexpr int Ceil(int a, int b) { return (a + b - 1) / b; }

// [tiles of rows a warp: 1, 2, 4, 8][units a warp - 1]
constexpr const char* kChains[4][2] = {{"mma_linear_chain_1_1", "mma_linear_chain_1_2"},
                                       {"mma_linear_chain_2_1", "mma_linear_chain_2_2"},
                                       {"mma_linear_chain_4_1", "mma_linear_chain_4_2"},
                                       {"mma_linear_chain_8_1", "mma_linear_chain_8_2"}};
constexpr const char* kLeaves[4][3] = {
    {"mma_linear_leaves_1_1", "mma_linear_leaves_1_2", "mma_linear_leaves_1_3"},
    {"mma_linear_leaves_2_1", "mma_linear_leaves_2_2", "mma_linear_leaves_2_3"},
    {"mma_linear_leaves_4_1", "mma_linear_leaves_4_2", "mma_linear_leaves_4_3"},
    {"mma_linear_leaves_8_1", "mma_linear_leaves_8_2", "mma_linear_leaves_8_3"}};

int LogOf(int power) {
  int log = 0;
  while (1 << log < power) ++log;
  return log;
}

KernelPlan PlanOf(const char* kernel, int blocks, int shared_bytes) {
  return {kernel,
          {.blocks = {blocks, 1, 1}, .threads = kSmallThreads, .shared_bytes = shared_bytes}};
}

KernelPlan PlanChain(int multiprocessors, int tiles, SmallLinearParams* params) {
  constexpr int kMostUnits = 2 * kSmallConsumers;
  const int chunks = params->leaf_begin[1], total = params->num_panels * 4;
  const int waves = Ceil(total, multiprocessors * kMostUnits);
  const int units = Ceil(total, multiprocessors * waves), of_warp = units > kSmallConsumers ? 2 : 1;
  int row_groups = 1;
  while (of_warp == 1 && row_groups * 2 * units <= kSmallConsumers && row_groups < tiles)
    row_groups *= 2;
  const int slice = units * kUnitBytes + tiles * 8 * kChunkSide * 2;
  const int shared = slice * chunks <= 2 * kHalfSharedBytes ? kHalfSharedBytes : kSharedBytes;
  const int room = shared - kTurnedBytes - 1024;
  int stage = std::clamp((kStageBytes + slice / 2) / slice, 1, 8);
  while (stage > 1 && (stage * (units + 1) > kCopiesOfStage || slice * stage * 2 > room)) --stage;
  params->units = units;
  params->row_groups = row_groups;
  params->stage_chunks = stage;
  params->stages = std::min(24, room / (slice * stage));
  return PlanOf(kChains[LogOf(tiles / row_groups)][of_warp - 1],
                std::min(multiprocessors, Ceil(total, units)),
                params->stages * (slice * stage + 2 * kBarrierBytes) + kTurnedBytes);
}

KernelPlan PlanLeaves(int multiprocessors, int tiles, SmallLinearParams* params) {
  const int total = params->num_panels * 4;
  const int units = std::min(Ceil(total, multiprocessors), 3);
  const int slices = kMmaLeaves * (units * kUnitBytes + tiles * 8 * kChunkSide * 2);
  const int room = kSharedBytes - kTurnedBytes - 256;
  int most = 0;
  for (int leaf = 0; leaf < params->num_leaves; ++leaf)
    most = std::max(most, params->leaf_begin[leaf + 1] - params->leaf_begin[leaf]);
  int stage = std::clamp(kStageBytes / slices, 1, most);
  while (stage > 1 && kMmaLeaves * stage * (units + 1) > kCopiesOfStage) --stage;
  params->units = units;
  params->row_groups = 1;
  params->stage_chunks = stage;
  params->stages = std::min(16, room / (slices * stage));
  return PlanOf(kLeaves[LogOf(tiles)][units - 1], Ceil(total, units),
                params->stages * (slices * stage + 2 * kBarrierBytes) + kTurnedBytes);
}

}  // namespace

KernelPlan PlanSmallLinear(int multiprocessors, SmallLinearParams* params) {
  FB_CHECK(params->rows >= 1 && params->rows <= kChunkSide && params->num_leaves >= 1 &&
               params->num_leaves <= kMmaLeaves,
           "{} rows and {} leaves of a small linear layer", params->rows, params->num_leaves);
  const int tiles = 1 << LogOf(Ceil(params->rows, 8));
  return params->num_leaves == 1 ? PlanChain(multiprocessors, tiles, params)
                                 : PlanLeaves(multiprocessors, tiles, params);
}

KernelPlan PlanManyLinear(int multiprocessors, ManyLinearParams* params) {
  constexpr int kGroup = 16;  // row tiles
  const int row_tiles = Ceil(params->row_blocks * kChunkSide, kManyRows);
  const auto columns_of = [&](ManyForm form) {
    return Ceil(params->num_panels * kChunkSide, form.columns);
  };
  // Time in columns of a tile: whole waves, each tile of the narrow form a tenth slower.
  const auto time = [&](ManyForm form) {
    return Ceil(Ceil(row_tiles, form.blocks) * columns_of(form), multiprocessors / form.blocks) *
           form.columns;
  };
  const bool leaves = params->num_leaves > 1;
  const bool narrow = leaves || time(kMany128) * 11 < time(kMany256) * 10;
  const ManyForm form = leaves ? kManyLeaves : narrow ? kMany128 : kMany256;
  params->row_tiles = Ceil(row_tiles, form.blocks);
  params->column_tiles = columns_of(form);
  params->group = std::min(params->row_tiles, kGroup / form.blocks);
  const int clusters =
      std::min(multiprocessors / form.blocks, params->row_tiles * params->column_tiles);
  return {leaves   ? "mma_linear_128_leaves"
          : narrow ? "mma_linear_128"
                   : "mma_linear_256",
          {.blocks = {clusters * form.blocks, 1, 1},
           .threads = kManyThreads,
           .shared_bytes = ManySharedBytes(form),
           .cluster_blocks = form.blocks}};
}

std::vector<DecodeUnit> ListDecodeUnits(std::span<const DecodeRow> rows, int kv_heads) {
  std::vector<DecodeUnit> units;
  for (const DecodeRow& row : rows) {
    const int first_part = row.first / kPartTokens, end_part = row.last / kPartTokens + 1;
    for (int part = first_part; part < end_part; ++part) {
      for (int head = 0; head < kv_heads; ++head) {
        units.push_back({.row = row.row,
                         .table_row = row.table_row,
                         .kv_head = head,
                         .part = part - first_part,
                         .parts = end_part - first_part,
                         .first = std::max(row.first, part * kPartTokens),
                         .end = std::min(row.last + 1, (part + 1) * kPartTokens)});
      }
    }
  }
  std::ranges::stable_sort(units, std::greater{},
                           [](const DecodeUnit& unit) { return unit.end - unit.first; });
  return units;
}

KernelPlan PlanDecode(int multiprocessors, int head_dim, const DecodeParams& params) {
  FB_CHECK((head_dim == 64 || head_dim == 128) && params.group <= kMostGroup,
           "decode attention of {} heads of {}", params.group, head_dim);
  const int piece = HeadHalfBytes(head_dim), warps = DecodeWarps(head_dim);
  if (params.num_units <= 2 * multiprocessors) {
    return {
        head_dim == 64 ? "mma_decode_wide_64" : "mma_decode_wide_128",
        {.blocks = {std::min(multiprocessors * (head_dim == 64 ? 2 : 1), params.num_units), 1, 1},
         .threads = kWideThreads,
         .shared_bytes = WidePieces(head_dim) * (piece + 2 * kBarrierBytes) + kWideExtraBytes}};
  }
  return {head_dim == 64 ? "mma_decode_64" : "mma_decode_128",
          {.blocks = {multiprocessors, 1, 1},
           .threads = warps * 32,
           .shared_bytes = warps * DecodePieces(head_dim) * (piece + kBarrierBytes)}};
}

std::vector<PrefillTile> ListPrefillTiles(std::span<const SequenceRows> sequences) {
  std::vector<PrefillTile> tiles;
  for (const SequenceRows& rows : sequences) {
    for (int row = 0; row < rows.num_rows; row += kPrefillRows) {
      tiles.push_back({.row = rows.first_row + row,
                       .rows = std::min(kPrefillRows, rows.num_rows - row),
                       .table_row = rows.table_row,
                       .first_position = rows.first_position + row,
                       .end = rows.first_position + rows.num_rows});
    }
  }
  std::ranges::stable_sort(tiles, std::greater{}, [](const PrefillTile& tile) {
    return (tile.first_position + tile.rows + kMmaStepTokens - 1) / kMmaStepTokens;
  });
  return tiles;
}

KernelPlan PlanPrefill(int multiprocessors, const PrefillParams& params) {
  return {"mma_prefill_128",
          {.blocks = {std::min(multiprocessors, params.num_tiles * params.heads), 1, 1},
           .threads = kPrefillThreads,
           .shared_bytes = kPrefillSharedBytes}};
}

}  // namespace forebay::kernels::cuda
