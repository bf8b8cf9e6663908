#include "price/steal_price.h"

#include <algorithm>
#include <vector>

#include "fabric/fabric.h"
#include "kernels/step_batch.h"
#include "kv/pull_parts.h"

namespace forebay::price {
namespace {

// Steps of the job's tail: what a row adds to one of few rows, and what a token of context adds.
constexpr int64_t kFewTailRows = 4, kManyTailRows = 16, kTailContext = 1024;

// What the ranks of a replica have of its KV.
std::vector<kv::KvShare> SharesOf(const layout::LayoutPlan& plan) {
  std::vector<kv::KvShare> shares;
  for (const layout::RankPlan& rank : plan.ranks) {
    shares.push_back({static_cast<int>(shares.size()), rank.memory.decoder->shard.layers,
                      rank.memory.kv_groups, rank.memory.num_blocks, rank.memory.states});
  }
  return shares;
}

}  // namespace

schedule::StealPrices PriceHandOver(const layout::EngineOptions& options,
                                    const layout::LayoutPlan& context,
                                    const layout::LayoutPlan& generation) {
  const cost::DeviceProfile& profile = generation.machine.profile;
  const std::vector<kv::KvShare> givers = SharesOf(context), takers = SharesOf(generation);
  const int requests = fabric::CopyPlan().requests_in_flight;
  schedule::StealPrices prices;
  double most_states = 0;
  // All ranks pull at once.
  for (size_t taker = 0; taker < takers.size(); ++taker) {
    double block = 0, states = 0;
    for (const kv::PullPart& part : kv::PullParts(takers, taker, givers, options.digest)) {
      const double alone = static_cast<double>(part.bytes) / cost::PullRate(profile);
      const bool is_state = part.group == static_cast<int32_t>(takers[taker].groups.size());
      (is_state ? states : block) += std::max(alone, (profile.link_latency_s + alone) / requests);
    }
    prices.kv_token_seconds = std::max(prices.kv_token_seconds, block / kernels::kBlockTokens);
    most_states = std::max(most_states, states);
  }
  prices.move_seconds = profile.link_latency_s + profile.step_overhead_s + most_states;
  return prices;
}

std::optional<schedule::StealPrices> PriceStealing(const layout::EngineOptions& options,
                                                   const layout::LayoutPlan& plan,
                                                   const StepPricer* pricer) {
  using Prices = std::optional<schedule::StealPrices>;
  if (options.steal == layout::Stealing::kOff || plan.layout.dp == 1) return Prices();
  if (options.steal == layout::Stealing::kAlways) return Prices({.row_seconds = 1});
  const cost::DeviceProfile& profile = plan.machine.profile;
  std::optional<StepPricer> of_tail;
  if (pricer == nullptr) {
    pricer = &of_tail.emplace(plan.config, plan.dtype, plan.layout.degrees(),
                              model::StepCapacity{kManyTailRows, kManyTailRows}, profile,
                              options.pricing());
  }
  const auto seconds = [&](int64_t rows, int64_t context) {
    return pricer->Decode(rows, context).all().seconds;
  };
  const double few = seconds(kFewTailRows, 1), many = seconds(kManyTailRows, 1),
               deep = seconds(kManyTailRows, 1 + kTailContext);
  // What a choice takes along whatever its length.
  uint64_t states = 0;
  for (const layout::RankPlan& rank : plan.ranks)
    states = std::max(states, kv::PlaceBytes(rank.memory.states));
  return Prices(
      {.row_seconds = std::max(0.0, many - few) / (kManyTailRows - kFewTailRows),
       .context_token_seconds = std::max(0.0, deep - many) / (kManyTailRows * kTailContext),
       .kv_token_seconds = static_cast<double>(plan.KvBlockBytes(options.digest)) /
                           kernels::kBlockTokens / cost::PullRate(profile),
       .move_seconds = profile.link_latency_s + profile.step_overhead_s +
                       static_cast<double>(states) / cost::PullRate(profile)});
}

}  // namespace forebay::price
