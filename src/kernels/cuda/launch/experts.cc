#include "kernels/cuda/launch/experts.h"

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "kernels/cuda/registry.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kMostRowTiles = 4;  // eights of rows of the small kernel

// [log2 of eights of rows][units a warp - 1]
constexpr const char* kSmallExperts[3][2] = {{"mma_experts_small_1_1", "mma_experts_small_1_2"},
                                             {"mma_experts_small_2_1", "mma_experts_small_2_2"},
                                             {"mma_experts_small_4_1", "mma_experts_small_4_2"}};

bool IsAligned(int64_t elements) { return elements % 8 == 0; }

// Of the shared memory: where counts lie.
int OffsetsBytes(const ExpertsParams& params) {
  return params.offsets == nullptr ? 0 : (params.num_experts + 1) * int{sizeof(int32_t)};
}

// Tiles of `rows` rows that there may be.
int64_t MostRowTiles(const ExpertsParams& params, int max_rows, int rows) {
  return params.offsets == nullptr ? int64_t{params.num_experts} * Ceil(max_rows, rows)
                                   : max_rows / rows + std::min(params.num_experts, max_rows);
}

ExpertsParams ParamsOf(const ExpertsArgs& args, const device::LaunchContext& context) {
  const PackedWeight& weight = args.weight;
  const bool heads = args.heads();
  return {.runs = heads ? nullptr : context.OnDevice(args.runs),
          .tiles = heads ? context.OnDevice(weight.tiles) : nullptr,
          .tile_bytes = weight.TileBytes(0, 0),
          .offsets = context.OnDevice(args.offsets),
          .x = args.x,
          .x_rows = args.x_rows,
          .x_granules = args.x_stride / 8,
          .x_step = args.x_step / 8,
          .to = {.y = args.y,
                 .y_stride = args.y_stride,
                 .panels = reinterpret_cast<const int32_t*>(context.OnDevice(weight.panels)),
                 .bias = context.OnDevice(weight.bias),
                 .output = static_cast<int32_t>(args.output),
                 .rows = args.max_rows},
          .y_step = args.y_step,
          .num_experts = args.num_experts,
          .num_panels = weight.num_panels,
          .k = weight.k};
}

}  // namespace

bool LaunchExperts(const ExpertsArgs& args, const device::LaunchContext& context) {
  const ExpertsParams params = ParamsOf(args, context);
  if (context.architecture != 90 || !IsAligned(args.weight.k) || !IsAligned(args.x_stride) ||
      !IsAligned(args.x_step) || reinterpret_cast<uintptr_t>(args.x) % 16 != 0 ||
      ManySharedBytes(kMany256) + OffsetsBytes(params) > kSharedBytes ||
      !TensorCoresStore(args.output))
    return false;
  const int64_t few = int64_t{kFewExpertRows} * (args.heads() ? 1 : args.num_experts);
  if (args.max_rows <= few) {
    SmallExpertsParams small{.of = params};
    const KernelPlan plan = PlanSmallExperts(context.multiprocessors, args.max_rows, &small);
    context.Launch(KernelNamed(plan.kernel), plan.shape, small);
  } else {
    const KernelPlan plan = PlanManyExperts(context.multiprocessors, args.max_rows, params);
    context.Launch(KernelNamed(plan.kernel), plan.shape, params);
  }
  return true;
}

KernelPlan PlanSmallExperts(int multiprocessors, int max_rows, SmallExpertsParams* params) {
  const ExpertsParams& of = params->of;
  const bool heads = of.offsets == nullptr;
  FB_CHECK(max_rows <= int64_t{kFewExpertRows} * (heads ? 1 : of.num_experts),
           "{} rows of {} experts or heads by kernels of few rows", max_rows, of.num_experts);
  // Counts differ: twice the average has room.
  const int rows = heads ? max_rows : Ceil(2 * int64_t{max_rows}, of.num_experts);
  int log = 0;
  while ((8 << log) < rows && (1 << log) < kMostRowTiles) ++log;
  const int tiles = 1 << log, total = of.num_panels * (kChunkSide / kUnitColumns);
  const int x_bytes = tiles * 8 * kChunkSide * 2;
  const int chunks = Ceil(of.k, kChunkSide);
  // The width whose whole waves bring the fewest bytes, each expert's rows in one tile.
  const auto time = [&](int units) {
    const int64_t items =
        int64_t{heads ? of.num_experts : std::min(of.num_experts, max_rows)} * Ceil(total, units);
    return int64_t{Ceil(items, multiprocessors)} * (units * kUnitBytes + x_bytes);
  };
  int units = 1;
  for (int wider = 2; wider <= std::min(total, 2 * kSmallConsumers); ++wider) {
    if (time(wider) <= time(units)) units = wider;
  }
  const int slice = x_bytes + units * kUnitBytes,
            room = kSharedBytes - 1024 - kUnitStores - OffsetsBytes(of);
  int stage = std::clamp((kStageBytes + slice / 2) / slice, 1, std::min(chunks, 8));
  while (stage > 1 && (stage * units > kCopiesOfStage || slice * stage * 3 > room)) --stage;
  params->units = units;
  params->stage_chunks = stage;
  params->stages = std::min(24, room / (slice * stage));
  return {
      kSmallExperts[log][units > kSmallConsumers ? 1 : 0],
      {.blocks = {static_cast<int>(std::min<int64_t>(
                      multiprocessors, MostRowTiles(of, max_rows, tiles * 8) * Ceil(total, units))),
                  1, 1},
       .threads = kSmallThreads,
       .shared_bytes = params->stages * (slice * stage + 2 * int{sizeof(uint64_t)}) + kUnitStores +
                       OffsetsBytes(of)}};
}

KernelPlan PlanManyExperts(int multiprocessors, int max_rows, const ExpertsParams& params) {
  const int64_t tiles = MostRowTiles(params, max_rows, kManyRows) *
                        Ceil(params.num_panels * kChunkSide, kMany256.columns);
  return {"mma_experts_256",
          {.blocks = {static_cast<int>(std::min<int64_t>(multiprocessors, tiles)), 1, 1},
           .threads = kManyThreads,
           .shared_bytes = ManySharedBytes(kMany256) + OffsetsBytes(params)}};
}

}  // namespace forebay::kernels::cuda
