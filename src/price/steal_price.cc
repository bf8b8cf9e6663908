#include "price/steal_price.h"

#include <algorithm>

#include "kernels/step_batch.h"

namespace forebay::price {
namespace {

// Steps of the job's tail: what a row adds to one of few rows, and what a token of context adds.
constexpr int64_t kFewTailRows = 4, kManyTailRows = 16, kTailContext = 1024;

}  // namespace

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
