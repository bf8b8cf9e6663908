#include "kernels/cpu/rows_inl.h"
#include "kernels/sets.h"

namespace forebay::kernels::avx2 {

void RopeKv(const RopeKvArgs& args, const device::WorkerContext& context) { TransformAllRows(args, context); }
void RmsNorm(const RmsNormArgs& args, const device::WorkerContext& context) { NormAllRows(args, context); }

}  // namespace forebay::kernels::avx2
