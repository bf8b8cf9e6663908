#include "kernels/cpu/linear_tile512.h"

namespace forebay::kernels {
namespace {
template <typename T>
struct Micro : FmaMicro<T> {};
}  // namespace
}  // namespace forebay::kernels

#include "kernels/cpu/experts_loop.h"

namespace forebay::kernels::avx512f {
void Linear(const LinearArgs& args, const device::WorkerContext& context) {
  RunLinear(args, context);
}
void Experts(const ExpertsArgs& args, const device::WorkerContext& context) {
  RunExperts(args, context);
}
}  // namespace forebay::kernels::avx512f
