// The linear kernels, one a set: what KernelSet::linear points to.
//
// REQUIRES of all: the calling threads flush denormals (FTZ and DAZ).
#pragma once

#include "device/operation.h"
#include "kernels/linear.h"

namespace forebay::kernels {

namespace ref {
void Linear(const LinearArgs& args, const device::WorkerContext& context);
}
namespace avx2 {
void Linear(const LinearArgs& args, const device::WorkerContext& context);
}
namespace avx512f {
void Linear(const LinearArgs& args, const device::WorkerContext& context);
}
namespace avx512bf16 {
void Linear(const LinearArgs& args, const device::WorkerContext& context);
// Whether vdpbf16ps gives the bits of two chained fused multiply-adds, odd element first, denormals flushed, on this
// CPU (a few thousand random lanes). Where it does not, the set is no member of class `pair`.
bool DotProductMatchesFma();
}  // namespace avx512bf16

}  // namespace forebay::kernels
