#include "share/ship_plan.h"

#include <algorithm>
#include <bit>

#include "fabric/collectives.h"
#include "kernels/reduce.h"
#include "kernels/serve.h"
#include "model/blocks/dense_ffn.h"
#include "model/blocks/experts.h"

namespace forebay::share {
namespace {

// Whether it is a gated block whose leaves can be computed with one by one.
bool HasLeaves(const model::LayerPlan& layer) {
  return model::FindRole(layer.matrices, model::kGateUp) != nullptr &&
         model::FindRole(layer.matrices, model::kDown) != nullptr;
}

// All layers with experts are alike in this. Of these each tp rank has its part.
void SetOwners(const std::vector<ShipMember>& stage, int64_t layer, ShipPlan* plan) {
  std::vector<kernels::HolderMask> holders;
  for (int first = 0; const ShipMember& member : stage) {
    const weights::PoolBook& book = *member.pool->book;
    for (int32_t expert = 0; expert < book.group().layer(layer).num_leaves; ++expert) {
      kernels::HolderMask mask = 0;
      for (int rank = 0; rank < plan->num_replicas; ++rank) {
        if (book.OffsetOf(rank, {layer, expert}) != weights::PoolBook::kNotHeld)
          mask |= kernels::HolderMask{1} << (first + rank);
      }
      holders.push_back(mask);
    }
    first += plan->num_replicas;
  }
  plan->num_experts = static_cast<int32_t>(holders.size());
  plan->expert_owners.resize(holders.size() * static_cast<size_t>(plan->num_replicas));
  kernels::ChooseOwners(holders, plan->num_replicas, nullptr, plan->expert_owners.data());
  const auto alone = [](kernels::HolderMask mask) { return std::has_single_bit(mask); };
  if (!std::ranges::all_of(holders, alone)) plan->expert_holders = std::move(holders);
}

std::vector<int32_t> PanelsOfLeaves(const model::LayerPlan& layer) {
  const kernels::LeafBorders& leaves = layer.matrix(model::kDown).leaves;
  const std::vector<weights::PanelPlan>& panels = layer.matrix(model::kGateUp).panels();
  std::vector<int32_t> first;
  for (int leaf = 0; leaf <= leaves.num_leaves; ++leaf) {
    const auto at = std::ranges::lower_bound(
        panels, leaves.begin[leaf], {},
        [](const weights::PanelPlan& panel) { return panel.columns.column; });
    first.push_back(static_cast<int32_t>(at - panels.begin()));
  }
  return first;
}

}  // namespace

base::Result<std::vector<ShipPlan>> PlanShip(const StepMode& mode, const ShipOptions& options,
                                             const std::vector<ShipMember>& stage) {
  const PoolPlan& pool = *stage[0].pool;
  const model::DecoderPlan& decoder = *stage[0].decoder;
  ShipPlan shared{.mode = mode,
                  .options = options,
                  .num_replicas = pool.num_members,
                  .tp = static_cast<int>(stage.size())};
  for (const int32_t pool_layer : pool.book->group().pool_index)
    shared.layers.push_back({.pooled = pool_layer >= 0});
  if (shared.num_members() > fabric::Exchange::kMostRanks) {
    return base::Status(kCannotShip,
                        fmt::format("{} replicas of {} ranks would meet; expected at most {} ranks",
                                    shared.num_replicas, shared.tp, fabric::Exchange::kMostRanks));
  }
  if (mode.pulls()) {
    shared.rows_bytes = fabric::Exchange::StagingBytes(1);  // they meet with nothing to say
    return std::vector<ShipPlan>(stage.size(), shared);
  }
  if (pool.options.attention) {
    return base::Status(kCannotShip,
                        "rows are shipped to the owners of FFNs "
                        "alone; expected pool-attention=off");
  }
  if (!decoder.config.AddsPlainly()) {
    return base::Status(kCannotShip,
                        "what this model's FFNs give goes through a norm or a factor before it is "
                        "added; expected a model without");
  }
  for (size_t layer = 0; layer < shared.layers.size(); ++layer) {
    ShipPlan::Layer& shipped = shared.layers[layer];
    if (!shipped.pooled) continue;
    if (pool.book->group().layer(static_cast<int64_t>(layer)).tensors ==
        weights::TensorKind::kExperts) {
      shipped.experts = true;
      shared.max_owners = shared.num_replicas;
      if (shared.expert_owners.empty()) SetOwners(stage, static_cast<int64_t>(layer), &shared);
      continue;
    }
    if (!HasLeaves(decoder.layers[layer])) {
      return base::Status(kCannotShip, fmt::format("the feed-forward block of layer {} is not one "
                                                   "that ranks can compute parts of",
                                                   layer));
    }
    shipped.num_leaves = decoder.layers[layer].matrix(model::kDown).leaves.tree_leaves();
    int64_t owned = 0;
    int planes = 0, owners = 0;
    for (const ShipMember& member : stage) {
      const int before = member.decoder->layers[layer].matrix(model::kDown).leaves.leaves_before;
      for (int replica = 0; replica < shared.num_replicas; ++replica) {
        const base::Part& own = member.pool->book->LeavesOf(replica, static_cast<int64_t>(layer));
        const base::Part part{before + own.begin, before + own.end};
        const int count = kernels::NumPlanes(shipped.num_leaves, static_cast<int>(part.begin),
                                             static_cast<int>(part.end));
        shipped.leaves.push_back(part);
        shared.max_planes = std::max(shared.max_planes, count);
        planes += count;
        owned += part.size();
        owners += part.size() > 0 && &member == &stage[0];
      }
    }
    shared.total_planes = std::max(shared.total_planes, planes);
    shared.max_owners = std::max(shared.max_owners, owners);
    if (owned == shipped.num_leaves) continue;
    return base::Status(kCannotShip,
                        fmt::format("weights={} over {} ranks leaves {} of {} leaves of layer {} "
                                    "without an owner that "
                                    "could compute with them; expected weights=by_layer or striped",
                                    pool.options.placement.text(), shared.num_replicas,
                                    shipped.num_leaves - owned, shipped.num_leaves, layer));
  }
  const auto hidden = static_cast<uint64_t>(decoder.config.hidden_size);
  const auto rows = static_cast<uint64_t>(options.rows);
  uint64_t rows_bytes = tensor::BytesOf(decoder.dtype, rows * hidden),
           sums_bytes = static_cast<uint64_t>(shared.max_planes * shared.gathered_rows()) * hidden *
                        sizeof(float);
  if (shared.num_experts > 0) {
    shared.experts_per_token = static_cast<int32_t>(decoder.config.moe->experts_per_token);
    const auto k = static_cast<uint64_t>(shared.experts_per_token),
               round = static_cast<uint64_t>(options.expert_rows),
               served = static_cast<uint64_t>(shared.served_rows());
    const uint64_t row_bytes = tensor::BytesOf(decoder.dtype, hidden);
    shared.sent_row_bytes = row_bytes;
    if (options.reduced_wire && decoder.config.stored) {
      shared.sent_row_bytes = static_cast<uint64_t>(
          cost::BytesPerElement(decoder.config.stored->format) * static_cast<double>(hidden));
    }
    shared.experts_offset = base::RoundUp(round * row_bytes, 64);
    shared.outputs_offset = base::RoundUp(served * k * sizeof(int32_t), 64);
    rows_bytes = std::max(rows_bytes, shared.experts_offset + round * k * sizeof(int32_t));
    uint64_t round_bytes = shared.outputs_offset + served * k * row_bytes;
    if (!shared.expert_holders.empty()) {
      const uint64_t owners = shared.expert_owners.size();
      shared.owners_offset = base::RoundUp(round_bytes, 64);
      shared.counts_offset = base::RoundUp(shared.owners_offset + owners, 64);
      round_bytes = shared.counts_offset + owners * sizeof(int32_t);
    }
    sums_bytes = std::max(sums_bytes, round_bytes);
  }
  shared.rows_bytes = fabric::Exchange::StagingBytes(rows_bytes);
  shared.sums_bytes = fabric::Exchange::StagingBytes(sums_bytes);
  std::vector<ShipPlan> plans(stage.size(), shared);
  for (size_t t = 0; t < stage.size(); ++t) {
    plans[t].tp_rank = static_cast<int>(t);
    for (size_t layer = 0; layer < shared.layers.size(); ++layer) {
      ShipPlan::Layer& shipped = plans[t].layers[layer];
      if (!shipped.pooled || shipped.experts) continue;
      const model::LayerPlan& own = stage[t].decoder->layers[layer];
      shipped.leaves_before = own.matrix(model::kDown).leaves.leaves_before;
      shipped.panel_of_leaf = PanelsOfLeaves(own);
    }
  }
  return plans;
}

}  // namespace forebay::share
