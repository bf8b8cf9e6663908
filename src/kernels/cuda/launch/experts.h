// Which kernel of class mma_k16f25 runs the matrices of experts or heads, on what grid: functions
// of the shape and the GPU's count of multiprocessors alone. No answer depends on them.
#pragma once

#include "kernels/cuda/launch/mma.h"
#include "kernels/experts.h"

namespace forebay::kernels::cuda {

// Launches one kernel for all experts (kernels/experts.h) where rows lie at 16 bytes and K is a
// multiple of 8, on compute capability 9.0. False: it has launched nothing.
bool LaunchExperts(const ExpertsArgs& args, const device::LaunchContext& context);

// Rows that an expert has on average, at most, where kernels of few rows take them.
inline constexpr int kFewExpertRows = 16;

// `max_rows`: of the grouped order, or of each head. Fills in units, stage_chunks and stages.
// REQUIRES: of each expert, or head, at most kFewExpertRows on average.
KernelPlan PlanSmallExperts(int multiprocessors, int max_rows, SmallExpertsParams* params);
KernelPlan PlanManyExperts(int multiprocessors, int max_rows, const ExpertsParams& params);

}  // namespace forebay::kernels::cuda
