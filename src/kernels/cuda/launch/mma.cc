#include "kernels/cuda/launch/mma.h"

#include <algorithm>
#include <cstdint>
#include <functional>

#include "base/check.h"
#include "kernels/cuda/registry.h"
#include "kernels/kv_layout.h"
#include "kernels/mma_attention.h"

namespace forebay::kernels::cuda {
namespace {

// Where the next kernel's block shall start beside this one's.
constexpr int kHalfSharedBytes = 110 << 10;
constexpr int kBarrierBytes = 8;

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

// `ring_bytes`: with barriers.
KernelPlan PlanOf(const char* kernel, int blocks, int ring_bytes) {
  return {kernel,
          {.blocks = {blocks, 1, 1},
           .threads = kSmallThreads,
           .shared_bytes = ring_bytes + kUnitStores,
           .overlaps = true}};
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
  const int room = shared - kUnitStores - 1024;
  int stage = std::clamp((kStageBytes + slice / 2) / slice, 1, 8);
  while (stage > 1 && (stage * (units + 1) > kCopiesOfStage || slice * stage * 2 > room)) --stage;
  params->units = units;
  params->row_groups = row_groups;
  params->stage_chunks = stage;
  params->stages = std::min(24, room / (slice * stage));
  return PlanOf(kChains[LogOf(tiles / row_groups)][of_warp - 1],
                std::min(multiprocessors, Ceil(total, units)),
                params->stages * (slice * stage + 2 * kBarrierBytes));
}

KernelPlan PlanLeaves(int multiprocessors, int tiles, SmallLinearParams* params) {
  const int total = params->num_panels * 4;
  const int units = std::min(Ceil(total, multiprocessors), 3);
  const int slices = kMmaLeaves * (units * kUnitBytes + tiles * 8 * kChunkSide * 2);
  const int room = kSharedBytes - kUnitStores - 256;
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
                params->stages * (slices * stage + 2 * kBarrierBytes));
}

// The chunks where each leaf of K begins, and behind the last.
void FillChunks(const LeafBorders& leaves, int32_t* chunk_begin) {
  chunk_begin[0] = 0;
  for (int leaf = 0; leaf < leaves.num_leaves; ++leaf) {
    chunk_begin[leaf + 1] =
        chunk_begin[leaf] + Ceil(leaves.begin[leaf + 1] - leaves.begin[leaf], kChunkSide);
  }
}

// Leaves of a layer that make one output of each row.
struct Node {
  int first, count;
  LinearOutputs to;
};

// The node's kernel, whose x has been packed.
template <typename Params, typename Plan>
void LaunchNode(const LinearArgs& args, const PackRowsParams& packed, const Node& node,
                Params params, Plan plan_of, const device::LaunchContext& context) {
  const int first_chunk = packed.chunk_begin[node.first];
  params.tiles = context.OnDevice(args.weight.tiles) + int64_t{node.first} * args.weight.num_panels;
  params.x =
      (args.x_form == RowForm::kRows ? packed.chunks : args.x) + int64_t{first_chunk} * kChunkBytes;
  params.to = node.to;
  params.num_panels = args.weight.num_panels;
  params.num_leaves = node.count;
  for (int leaf = 0; leaf <= node.count; ++leaf)
    params.leaf_begin[leaf] = packed.chunk_begin[node.first + leaf] - first_chunk;
  const KernelPlan plan = plan_of(context.multiprocessors, &params);
  context.Launch(KernelNamed(plan.kernel), plan.shape, params);
}

}  // namespace

bool LaunchLinear(const LinearArgs& args, const device::LaunchContext& context) {
  const PackedWeight& weight = args.weight;
  const bool gated = IsGated(args.output), partial = args.output == LinearOutput::kPartial;
  if (context.architecture != 90 || context.multiprocessors < 2 || args.x_rows != nullptr ||
      (gated && weight.leaves.num_leaves > 1) || !TensorCoresStore(args.output))
    return false;
  PackRowsParams packed{.x = args.x,
                        .chunks = args.workspace,
                        .x_stride = args.x_stride,
                        .rows = args.rows,
                        .num_leaves = weight.leaves.num_leaves};
  std::copy_n(weight.leaves.begin, weight.leaves.num_leaves + 1, packed.leaf_begin);
  FillChunks(weight.leaves, packed.chunk_begin);
  const int row_blocks = Ceil(args.rows, kChunkSide);
  const int chunks = packed.chunk_begin[packed.num_leaves];
  if (args.x_form == RowForm::kRows) {
    static const device::CudaKernel& pack = KernelNamed("mma_pack_rows");
    context.Launch(pack, {.blocks = {chunks, row_blocks, 1}, .threads = kPackThreads}, packed);
  }

  Node node{.first = 0,
            .count = weight.leaves.num_leaves,
            .to = {.y = args.y,
                   .y_stride = args.y_stride,
                   .form = args.y_form,
                   .panels = reinterpret_cast<const int32_t*>(context.OnDevice(weight.panels)),
                   .bias = partial ? nullptr : context.OnDevice(weight.bias),
                   .output = static_cast<int32_t>(partial ? LinearOutput::kF32 : args.output),
                   .rows = args.rows}};
  int first[kMaxLeaves], level[kMaxLeaves];
  const int nodes =
      partial ? PartialPlanes(weight.leaves, args.leaf_begin, args.leaf_end, first, level) : 1;
  for (int n = 0; n < nodes; ++n) {
    if (partial) {
      node.first = first[n] - weight.leaves.leaves_before;
      node.count = std::min(first[n] + (1 << level[n]), weight.leaves.tree_leaves()) - first[n];
      node.to.y = args.y + n * args.rows * args.y_stride * static_cast<int64_t>(sizeof(float));
    }
    if (args.rows <= kChunkSide) {
      LaunchNode(args, packed, node, SmallLinearParams{}, PlanSmallLinear, context);
    } else {
      LaunchNode(args, packed, node, ManyLinearParams{.x_chunks = chunks, .row_blocks = row_blocks},
                 PlanManyLinear, context);
    }
  }
  return true;
}

KernelPlan PlanSmallLinear(int multiprocessors, SmallLinearParams* params) {
  const int rows = params->to.rows;
  FB_CHECK(rows >= 1 && rows <= kChunkSide && params->num_leaves >= 1 &&
               params->num_leaves <= kMmaLeaves,
           "{} rows and {} leaves of a small linear layer", rows, params->num_leaves);
  const int tiles = 1 << LogOf(Ceil(rows, 8));
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
  FB_CHECK(!leaves || !IsGated(static_cast<LinearOutput>(params->to.output)), "a gate of {} leaves",
           params->num_leaves);
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
    const auto slot = static_cast<int32_t>(units.size());
    for (int part = first_part; part < end_part; ++part) {
      for (int head = 0; head < kv_heads; ++head) {
        units.push_back({.row = row.row,
                         .table_row = row.table_row,
                         .kv_head = head,
                         .part = part - first_part,
                         .parts = end_part - first_part,
                         .first = std::max(row.first, part * kPartTokens),
                         .end = std::min(row.last + 1, (part + 1) * kPartTokens),
                         .slot = slot + head * (end_part - first_part)});
      }
    }
  }
  std::ranges::stable_sort(units, std::greater{},
                           [](const DecodeUnit& unit) { return unit.end - unit.first; });
  return units;
}

KernelPlan PlanDecode(int multiprocessors, int head_dim, int group, int units, bool coded) {
  FB_CHECK((head_dim == 64 || head_dim == 128) && group <= kMostGroup,
           "decode attention of {} heads of {}", group, head_dim);
  const int piece = HeadHalfBytes(head_dim), warps = DecodeWarps(head_dim);
  if (units <= 2 * multiprocessors && !coded) {
    return {head_dim == 64 ? "mma_decode_wide_64" : "mma_decode_wide_128",
            {.blocks = {multiprocessors * (head_dim == 64 ? 2 : 1), 1, 1},
             .threads = kWideThreads,
             .shared_bytes = WidePieces(head_dim) * (piece + 2 * kBarrierBytes) + kWideExtraBytes,
             .overlaps = true}};
  }
  const int of_warp = DecodePieces(head_dim) * (DecodePlaceBytes(head_dim, coded) + kBarrierBytes) +
                      DecodeTileBytes(head_dim, coded);
  return {coded            ? head_dim == 64 ? "mma_decode_codes_64" : "mma_decode_codes_128"
          : head_dim == 64 ? "mma_decode_64"
                           : "mma_decode_128",
          {.blocks = {multiprocessors, 1, 1},
           .threads = warps * 32,
           .shared_bytes = warps * of_warp,
           .overlaps = true}};
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

KernelPlan PlanPrefill(int multiprocessors, int tiles, int heads, bool coded) {
  return {coded ? "mma_prefill_codes_128" : "mma_prefill_128",
          {.blocks = {std::min(multiprocessors, tiles * heads), 1, 1},
           .threads = kPrefillThreads,
           .shared_bytes = kPrefillSharedBytes + (coded ? kPrefillScaleBytes : 0),
           .overlaps = true}};
}

void LaunchPlainAttention(const AttentionArgs& args, AttentionParams params,
                          const device::LaunchContext& context) {
  const int group = args.heads / args.layout.kv_heads;
  params.units =
      args.layout.kv_heads * Ceil(group, kMostGroup) * Ceil(args.layout.value_dim, kPlainValues);
  static const device::CudaKernel& kernel = KernelNamed("mma_attention_plain");
  context.Launch(kernel,
                 {.blocks = {args.batch.num_rows, Ceil(params.units, kWarpsOfAttention), 1},
                  .threads = kWarpsOfAttention * 32,
                  .shared_bytes = kWarpsOfAttention * kPlainKept * static_cast<int>(sizeof(float)),
                  .overlaps = context.architecture == 90},
                 params);
}

bool LaunchAttention(const AttentionArgs& args, const AttentionParams& plain,
                     const device::LaunchContext& context) {
  const KvLayout& layout = args.layout;
  const StepBatch& batch = args.batch;
  const int head_dim = layout.key_dim, group = args.heads / layout.kv_heads;
  if (context.architecture != 90 || layout.form != PackedForm::kCuda || head_dim > 128 ||
      group > kMostGroup || args.score_cap > 0 || args.sinks != nullptr)
    return false;
  // As many sequences as rows: each has one.
  const bool many = batch.num_rows > batch.num_sequences;
  const bool tiled = many && head_dim == 128 && args.reach.all();
  const int most_tiles = tiled ? batch.num_rows / kPrefillRows + batch.num_sequences : 0;
  const int64_t partial = int64_t{group} * (head_dim + 2) * static_cast<int64_t>(sizeof(float));
  const auto of_tiles = static_cast<int64_t>(most_tiles * sizeof(PrefillTile)) + 1024;
  const int64_t of_unit = sizeof(DecodeUnit) + sizeof(int32_t) + partial;
  const int64_t most_units = (static_cast<int64_t>(context.scratch_bytes) - of_tiles) / of_unit;
  if (most_units < layout.kv_heads) return false;

  // Totals, tiles, units, counts, partials: each begins where its element may.
  auto* const totals = reinterpret_cast<int32_t*>(context.scratch);
  auto* const tiles = reinterpret_cast<PrefillTile*>(context.scratch + 256);
  auto* const units = reinterpret_cast<DecodeUnit*>(tiles + most_tiles);
  auto* const counts = reinterpret_cast<int32_t*>(units + most_units);
  auto* const partials = reinterpret_cast<float*>(counts + most_units);
  const AttentionListParams lists{
      .sequences = batch.sequences,
      .num_sequences = batch.num_sequences,
      .kv_heads = layout.kv_heads,
      .reach_window = args.reach.window,
      .reach_chunk = args.reach.chunk,
      .most_units = static_cast<int32_t>(std::min<int64_t>(most_units, INT32_MAX)),
      .units = units,
      .counts = counts,
      .tiles = tiled ? tiles : nullptr,
      .totals = totals};
  // Else those of the attention before are still there: nothing between writes scratch.
  if (!args.as_before) {
    static const device::CudaKernel& list = KernelNamed("mma_attention_lists");
    context.Launch(
        list, {.threads = kListThreads, .shared_bytes = kListSharedBytes, .overlaps = true}, lists);
  }

  const MmaKvParams kv{.block_tables = batch.block_tables,
                       .table_stride = batch.table_stride,
                       .resident = args.layer.resident,
                       .window = args.layer.window,
                       .block_stride = layout.block_stride,
                       .layer_bytes = layout.LayerBytes(),
                       .kv_heads = layout.kv_heads,
                       .codes = static_cast<int32_t>(layout.codes)};
  const bool coded = layout.codes != KvCodes::kNone;
  const auto row_heads = static_cast<int32_t>(args.HeadsOfRow());
  const DecodeParams decode{.kv = kv,
                            .units = units,
                            .num_units = totals,
                            .group = group,
                            .row_heads = row_heads,
                            .scale = args.scale,
                            .q = args.q,
                            .out = args.out,
                            .out_form = args.out_form,
                            .partials = partials,
                            .counts = counts};
  const KernelPlan plan = PlanDecode(context.multiprocessors, head_dim, group,
                                     batch.num_sequences * layout.kv_heads, coded);
  context.Launch(KernelNamed(plan.kernel), plan.shape, decode);
  if (tiled) {
    const PrefillParams prefill{.kv = kv,
                                .tiles = tiles,
                                .num_tiles = totals + 1,
                                .heads = args.heads,
                                .row_heads = row_heads,
                                .scale = args.scale,
                                .q = args.q,
                                .out = args.out,
                                .out_form = args.out_form};
    const KernelPlan of_tiles_plan =
        PlanPrefill(context.multiprocessors, most_tiles, args.heads, coded);
    context.Launch(KernelNamed(of_tiles_plan.kernel), of_tiles_plan.shape, prefill);
  }
  // A table's width bounds a row's parts.
  const int64_t parts = batch.table_stride * kBlockTokens / kPartTokens + 2;
  const bool surely_fits = batch.num_sequences * layout.kv_heads * parts <= most_units;
  if ((!many || tiled) && surely_fits) return true;
  AttentionParams rest = plain;
  rest.least_rows = tiled ? INT32_MAX : 2;
  rest.fits = surely_fits ? nullptr : totals + 2;
  LaunchPlainAttention(args, rest, context);
  return true;
}

}  // namespace forebay::kernels::cuda
