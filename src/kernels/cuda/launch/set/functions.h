// The functions of the sets (kernel_sets.h), by subject.
#pragma once

#include "kernels/attention.h"
#include "kernels/cut_rows.h"
#include "kernels/delta_net.h"
#include "kernels/digest.h"
#include "kernels/draw.h"
#include "kernels/experts.h"
#include "kernels/latent_attention.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"
#include "kernels/route.h"

namespace forebay::kernels::cuda::set {

// linear.cc
void Linear(const LinearArgs& args, const device::WorkerContext& context);
void Experts(const ExpertsArgs& args, const device::WorkerContext& context);
void Reduce(const ReduceArgs& args, const device::WorkerContext& context);

// attention.cc
void Attention(const AttentionArgs& args, const device::WorkerContext& context);
void MmaAttention(const AttentionArgs& args, const device::WorkerContext& context);
void RopeKv(const RopeKvArgs& args, const device::WorkerContext& context);
void RopeRows(const RopeRowsArgs& args, const device::WorkerContext& context);
void StoreKv(const StoreKvArgs& args, const device::WorkerContext& context);
void LatentKv(const LatentKvArgs& args, const device::WorkerContext& context);
void GatherLatents(const GatherLatentsArgs& args, const device::WorkerContext& context);
void StoreExpanded(const StoreExpandedArgs& args, const device::WorkerContext& context);

// rows.cc
void RmsNorm(const RmsNormArgs& args, const device::WorkerContext& context);
void AddNormed(const AddNormedArgs& args, const device::WorkerContext& context);
void GateRows(const GateRowsArgs& args, const device::WorkerContext& context);
void LayerInputs(const LayerInputsArgs& args, const device::WorkerContext& context);
void ShortConv(const ShortConvArgs& args, const device::WorkerContext& context);
void DeltaNet(const DeltaNetArgs& args, const device::WorkerContext& context);
void Mamba2(const Mamba2Args& args, const device::WorkerContext& context);
void GatedNorm(const GatedNormArgs& args, const device::WorkerContext& context);
void FinishLogits(const FinishLogitsArgs& args, const device::WorkerContext& context);
void Embed(const EmbedArgs& args, const device::WorkerContext& context);
void LogitsDigest(const LogitsDigestArgs& args, const device::WorkerContext& context);
void DrawRows(const DrawRowsArgs& args, const device::WorkerContext& context);
void LikelyRows(const LikelyRowsArgs& args, const device::WorkerContext& context);

// experts.cc
void Route(const RouteArgs& args, const device::WorkerContext& context);
void GroupRows(const GroupRowsArgs& args, const device::WorkerContext& context);
void WeighRows(const WeighRowsArgs& args, const device::WorkerContext& context);
void CombineRows(const CombineRowsArgs& args, const device::WorkerContext& context);

}  // namespace forebay::kernels::cuda::set
