// The functions behind the kernel sets, all but linear and experts (linear_sets.h): one namespace
// an instruction set, the same names in each.
//
// REQUIRES of all: the calling threads flush denormals (FTZ and DAZ).
#pragma once

#include "device/operation.h"
#include "kernels/mma_order.h"

namespace forebay::kernels {

struct AddNormedArgs;
struct AttentionArgs;
struct CombineRowsArgs;
struct DeltaNetArgs;
struct EmbedArgs;
struct FinishLogitsArgs;
struct GateRowsArgs;
struct GatedNormArgs;
struct GatherLatentsArgs;
struct GroupRowsArgs;
struct KvLayout;
struct LatentKvArgs;
struct LayerInputsArgs;
struct LogitsDigestArgs;
struct Mamba2Args;
struct ReduceArgs;
struct RmsNormArgs;
struct RopeKvArgs;
struct RopeRowsArgs;
struct RouteArgs;
struct ShortConvArgs;
struct StoreExpandedArgs;
struct StoreKvArgs;
struct WeighRowsArgs;

#define FB_KERNEL_SET(isa)                                                             \
  namespace isa {                                                                      \
  void Attention(const AttentionArgs& args, const device::WorkerContext& context);     \
  void RopeKv(const RopeKvArgs& args, const device::WorkerContext& context);           \
  void RopeRows(const RopeRowsArgs& args, const device::WorkerContext& context);       \
  void StoreKv(const StoreKvArgs& args, const device::WorkerContext& context);         \
  void LatentKv(const LatentKvArgs& args, const device::WorkerContext& context);       \
  void GatherLatents(const GatherLatentsArgs& args, const device::WorkerContext&);     \
  void StoreExpanded(const StoreExpandedArgs& args, const device::WorkerContext&);     \
  void RmsNorm(const RmsNormArgs& args, const device::WorkerContext& context);         \
  void AddNormed(const AddNormedArgs& args, const device::WorkerContext& context);     \
  void LayerInputs(const LayerInputsArgs& args, const device::WorkerContext& context); \
  void FinishLogits(const FinishLogitsArgs& args, const device::WorkerContext&);       \
  void GateRows(const GateRowsArgs& args, const device::WorkerContext& context);       \
  void ShortConv(const ShortConvArgs& args, const device::WorkerContext& context);     \
  void DeltaNet(const DeltaNetArgs& args, const device::WorkerContext& context);       \
  void Mamba2(const Mamba2Args& args, const device::WorkerContext& context);           \
  void GatedNorm(const GatedNormArgs& args, const device::WorkerContext& context);     \
  void Route(const RouteArgs& args, const device::WorkerContext& context);             \
  void WeighRows(const WeighRowsArgs& args, const device::WorkerContext& context);     \
  void CombineRows(const CombineRowsArgs& args, const device::WorkerContext& context); \
  }
FB_KERNEL_SET(ref)
FB_KERNEL_SET(avx2)
FB_KERNEL_SET(avx512f)
FB_KERNEL_SET(avx512bf16)
#undef FB_KERNEL_SET

// Bound by memory: the plain form serves every set.
namespace ref {
void Embed(const EmbedArgs& args, const device::WorkerContext& context);
void LogitsDigest(const LogitsDigestArgs& args, const device::WorkerContext& context);
void GroupRows(const GroupRowsArgs& args, const device::WorkerContext& context);
void Reduce(const ReduceArgs& args, const device::WorkerContext& context);
}  // namespace ref

// The oracle of class `mma_*` with this order, of bf16; of fp32 as class `pair`.
namespace ref {
using AttentionFunction = void (*)(const AttentionArgs&, const device::WorkerContext&);
AttentionFunction MmaAttention(MmaOrder order);
}  // namespace ref

// Bytes of a worker's scratch for attention: the same bound for every set.
uint64_t AttentionScratch(const KvLayout& layout, int32_t heads);

}  // namespace forebay::kernels
