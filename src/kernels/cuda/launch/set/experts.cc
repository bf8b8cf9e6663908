// Routes, and the rows of experts.
#include "base/check.h"
#include "kernels/cuda/launch/set/functions.h"
#include "kernels/cuda/launch/set/params.h"

namespace forebay::kernels::cuda::set {
namespace {

static_assert(static_cast<int>(RouterScores::kSigmoidOfChosen) == 2 &&
              static_cast<int>(RouterScores::kSoftmaxOfChosen) == 3 &&
              static_cast<int>(GroupScore::kTwoGreatest) == 1);

void CountGrouped(const GroupRowsArgs& args, const device::WorkerContext&) {
  if (args.counters != nullptr) args.counters->Count(args.offsets, args.num_experts);
  args.lacked.Count(args.offsets);
}

}  // namespace

void Route(const RouteArgs& args, const device::WorkerContext& context) {
  const Router& router = args.router;
  const RouteParams params{.num_experts = router.num_experts,
                           .experts_per_token = router.experts_per_token,
                           .num_groups = router.num_groups,
                           .chosen_groups = router.chosen_groups,
                           .scores = static_cast<int32_t>(router.scores),
                           .group_score = static_cast<int32_t>(router.group_score),
                           .renormalize = router.renormalizes(),
                           .epsilon = router.epsilon,
                           .scale = router.scale,
                           .expert_scales = router.expert_scales,
                           .bias = router.bias,
                           .logits = args.logits,
                           .stride = args.stride,
                           .experts = args.experts,
                           .weights = args.weights};
  const int floats = 2 * router.num_experts + router.num_groups;
  const LaunchShape shape{.blocks = {args.rows, 1, 1},
                          .threads = kWarpLanes,
                          .shared_bytes = floats * static_cast<int>(sizeof(float)) +
                                          router.num_experts + router.num_groups};
  FB_LAUNCH("pair_route", shape, params);
}

void GroupRows(const GroupRowsArgs& args, const device::WorkerContext& context) {
  FB_CHECK(args.routing == nullptr, "a law draws routes on devices of shapes alone");
  const GroupRowsParams params{.experts = args.experts,
                               .slots = args.rows * args.experts_per_token,
                               .experts_per_token = args.experts_per_token,
                               .num_experts = args.num_experts,
                               .offsets = OnDevice(context, args.offsets),
                               .source = args.source,
                               .positions = args.positions};
  FB_LAUNCH("pair_group_rows", BlockARow(args.num_experts + 1, kRowWarps * 4), params);
  // Counters are the host's own.
  if (args.counters == nullptr && args.lacked.unused == nullptr) return;
  const device::LaunchContext& launcher = LaunchContextOf(context);
  launcher.FetchControl(args.offsets,
                        static_cast<uint64_t>(args.num_experts + 1) * sizeof(*args.offsets));
  launcher.OnHost<&CountGrouped>(args);
}

void WeighRows(const WeighRowsArgs& args, const device::WorkerContext& context) {
  const WeighRowsParams params{.element = ElementOf(args.dtype),
                               .x = args.x,
                               .weights = args.weights,
                               .out = args.out,
                               .columns = args.columns};
  FB_LAUNCH("pair_weigh_rows", BlockARow(args.rows), params);
}

void CombineRows(const CombineRowsArgs& args, const device::WorkerContext& context) {
  const CombineRowsParams params{.element = ElementOf(args.dtype),
                                 .expert_rows = args.expert_rows,
                                 .positions = args.positions,
                                 .weights = args.weights,
                                 .shared = args.shared,
                                 .y = args.y,
                                 .sums = args.sums,
                                 .experts_per_token = args.experts_per_token,
                                 .columns = args.columns};
  FB_LAUNCH("pair_combine_rows", BlockARow(args.rows), params);
}

}  // namespace forebay::kernels::cuda::set
