#include "kernels/cpu/linear_tile512.h"
#include "kernels/expand.h"

namespace forebay::kernels {
namespace {
template <typename T>
struct Micro : FmaMicro<T> {};
constexpr ExpandFunction kExpand = &avx512f::Expand;

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
