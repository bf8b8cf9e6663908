// The linear kernels and the experts' (kernels/experts.h), one a set: what KernelSet::linear and
// experts point to.
#pragma once

#include "device/operation.h"
#include "kernels/experts.h"
#include "kernels/linear.h"
#include "kernels/mma_order.h"
#include "kernels/tile_order.h"

namespace forebay::kernels {

// Whether the CPU multiplies codes of int8 in one instruction, of 256 bits and of 512.
bool HasAvxVnni();
bool HasAvx512Vnni();

namespace ref {
void Linear(const LinearArgs& args, const device::WorkerContext& context);
// The oracle of class `amx` with this order; null for kUnknown. Layers of fp32 are those of class
// `pair`.
LinearFunction TileLinear(TileOrder order);
void Experts(const ExpertsArgs& args, const device::WorkerContext& context);
ExpertsFunction TileExperts(TileOrder order);
// The oracles of class `mma_*` with this order, of bf16 likewise.
LinearFunction MmaLinear(MmaOrder order);
ExpertsFunction MmaExperts(MmaOrder order);
}  // namespace ref
namespace avx2 {
void Linear(const LinearArgs& args, const device::WorkerContext& context);
void Experts(const ExpertsArgs& args, const device::WorkerContext& context);
// The same with a faster product of int8 layers. REQUIRES: HasAvxVnni().
void LinearWithVnni(const LinearArgs& args, const device::WorkerContext& context);
void ExpertsWithVnni(const ExpertsArgs& args, const device::WorkerContext& context);
}  // namespace avx2
namespace avx512f {
void Linear(const LinearArgs& args, const device::WorkerContext& context);
void Experts(const ExpertsArgs& args, const device::WorkerContext& context);
// The same with a faster product of int8 layers. REQUIRES: HasAvx512Vnni().
void LinearWithVnni(const LinearArgs& args, const device::WorkerContext& context);
void ExpertsWithVnni(const ExpertsArgs& args, const device::WorkerContext& context);
}  // namespace avx512f
namespace avx512bf16 {
void Linear(const LinearArgs& args, const device::WorkerContext& context);
void Experts(const ExpertsArgs& args, const device::WorkerContext& context);
// Whether vdpbf16ps gives the bits of two chained fused multiply-adds, odd element first, denormals
// flushed, on this CPU (a few thousand random lanes). Where it does not, the set is no member of
// class `pair`.
bool DotProductMatchesFma();
}  // namespace avx512bf16
namespace amx {
// Its fp32 layers are those of avx512f.
void Linear(const LinearArgs& args, const device::WorkerContext& context);
void Experts(const ExpertsArgs& args, const device::WorkerContext& context);
// The same loop around tiles in plain C++ that sum in this order, on any machine with AVX2 (of fp32
// as avx2). For tests.
LinearFunction LinearOnModelTiles(TileOrder order);
ExpertsFunction ExpertsOnModelTiles(TileOrder order);
}  // namespace amx

}  // namespace forebay::kernels
