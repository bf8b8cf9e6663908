#include "kernels/cpu/linear_fma512.h"
#include "kernels/linear_sets.h"

namespace forebay::kernels {
namespace {
template <typename T>
using Micro = FmaMicro<T>;
}  // namespace
}  // namespace forebay::kernels

#include "kernels/cpu/linear_loop.h"

namespace forebay::kernels::avx512f {
void Linear(const LinearArgs& args, const device::WorkerContext& context) { RunLinear(args, context); }
}  // namespace forebay::kernels::avx512f
