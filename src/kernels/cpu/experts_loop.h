// Experts in a set that has the loop nest of linear_loop.h: a dense layer after another.
#pragma once

#include "kernels/cpu/experts_walk.h"
#include "kernels/cpu/linear_loop.h"

namespace forebay::kernels {
namespace {

// The worker's part of the codes that all experts share.
template <typename T, typename Kernel>
void CodeRows(const ExpertsArgs& args, const device::WorkerContext& context) {
  const int64_t k = args.weight.k;
  const Rows mine = Part(args.x_count, context.worker, context.num_workers);
  for (int64_t row = mine.begin; row < mine.end; ++row) {
    const T* const x = reinterpret_cast<const T*>(args.x) + row * args.x_stride;
    Kernel::CodeRow(x, k, reinterpret_cast<uint32_t*>(args.codes + row * CodedRowBytes(k)));
  }
}

template <typename T, typename Kernel, bool kInt8>
void RunExpertsOf(const ExpertsArgs& args, const device::WorkerContext& context) {
  using Loop = LinearLoop<T, Kernel, kInt8>;
  if constexpr (kInt8) {
    if (args.codes != nullptr && !args.coded) {
      CodeRows<T, Kernel>(args, context);
      context.Barrier();
    }
  }
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

template <typename Products>
void RunExperts(const ExpertsArgs& args, const device::WorkerContext& context) {
  FB_SWITCH_LINEAR(args.weight, Products, RunExpertsOf, args, context);
}

}  // namespace
}  // namespace forebay::kernels
