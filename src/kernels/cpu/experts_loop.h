// Experts in a set that has the loop nest of linear_loop.h: a dense layer after another.
#pragma once

#include "kernels/cpu/experts_walk.h"
#include "kernels/cpu/linear_loop.h"

namespace forebay::kernels {
namespace {

template <typename T, typename Kernel, bool kInt8>
void RunExpertsOf(const ExpertsArgs& args, const device::WorkerContext& context) {
  using Loop = LinearLoop<T, Kernel, kInt8>;
  ExpertWalk walk(args, context, BlockRows(args.weight.dtype, args.weight.k));
  ExpertPiece piece;
  while (walk.Next(&piece)) {
    const LinearSchedule schedule = ScheduleLinear(piece.layer, 1);
    const Loop loop{piece.layer, schedule, context,
                    reinterpret_cast<typename Loop::Packed*>(piece.layer.workspace),
                    reinterpret_cast<float*>(context.scratch)};
    if (!piece.same_rows) loop.PackX(0, 1);
    loop.Run({{piece.first_panel, piece.last_panel}, 0, 0});
  }
}

void RunExperts(const ExpertsArgs& args, const device::WorkerContext& context) {
  FB_SWITCH_LINEAR(args.weight, RunExpertsOf, args, context);
}

}  // namespace
}  // namespace forebay::kernels
