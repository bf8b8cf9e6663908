// Operations on rows of the set FB_SET, which is also its namespace: for one file of each
// set, that has its -m flags.
#pragma once

#include "kernels/cpu/delta_net_inl.h"
#include "kernels/cpu/latent_inl.h"
#include "kernels/cpu/route_inl.h"
#include "kernels/cpu/rows_inl.h"
#include "kernels/sets.h"

namespace forebay::kernels::FB_SET {

void RopeKv(const RopeKvArgs& args, const device::WorkerContext& context) {
  TransformAllRows(args, context);
}
void RopeRows(const RopeRowsArgs& args, const device::WorkerContext& context) {
  RopeAllRows(args, context);
}
void StoreKv(const StoreKvArgs& args, const device::WorkerContext& context) {
  StoreAllRows(args, context);
}
void LatentKv(const LatentKvArgs& args, const device::WorkerContext& context) {
  TransformAllLatents(args, context);
}
void GatherLatents(const GatherLatentsArgs& args, const device::WorkerContext& context) {
  GatherAllLatents(args, context);
}
void StoreExpanded(const StoreExpandedArgs& args, const device::WorkerContext& context) {
  StoreAllExpanded(args, context);
}
void RmsNorm(const RmsNormArgs& args, const device::WorkerContext& context) {
  NormAllRows(args, context);
}
void AddNormed(const AddNormedArgs& args, const device::WorkerContext& context) {
  AddAllRows(args, context);
}
void GateRows(const GateRowsArgs& args, const device::WorkerContext& context) {
  GateAllRows(args, context);
}
void LayerInputs(const LayerInputsArgs& args, const device::WorkerContext& context) {
  AllLayerInputs(args, context);
}
void ShortConv(const ShortConvArgs& args, const device::WorkerContext& context) {
  ConvAllRows(args, context);
}
void DeltaNet(const DeltaNetArgs& args, const device::WorkerContext& context) {
  DeltaAllRows(args, context);
}
void Mamba2(const Mamba2Args& args, const device::WorkerContext& context) {
  MambaAllRows(args, context);
}
void GatedNorm(const GatedNormArgs& args, const device::WorkerContext& context) {
  GatedNormAllRows(args, context);
}
void FinishLogits(const FinishLogitsArgs& args, const device::WorkerContext& context) {
  FinishAllLogits(args, context);
}
void Route(const RouteArgs& args, const device::WorkerContext& context) {
  RouteAllRows(args, context);
}
void WeighRows(const WeighRowsArgs& args, const device::WorkerContext& context) {
  WeighAllRows(args, context);
}
void CombineRows(const CombineRowsArgs& args, const device::WorkerContext& context) {
  CombineAllRows(args, context);
}

}  // namespace forebay::kernels::FB_SET
