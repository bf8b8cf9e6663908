#include "layout/steal_price.h"

#include <algorithm>

#include "kernels/step_batch.h"
#include "layout/step_price.h"

namespace forebay::layout {
namespace {

// Steps of the job's tail: what a row adds to one of few rows, and what a token of context adds.
constexpr int64_t kFewRows = 4, kManyRows = 16, kContext = 1024;

}  // namespace

std::optional<schedule::StealPrices> PriceStealing(const EngineOptions& options,
                                                   const model::ModelConfig& config,
                                                   const LayoutPlan& plan) {
  using Prices = std::optional<schedule::StealPrices>;
  if (options.steal == Stealing::kOff || plan.layout.dp == 1) return Prices();
  if (options.steal == Stealing::kAlways) return Prices({.row_seconds = 1});
  const cost::DeviceProfile& profile = plan.machine.profile;
  const StepPricer pricer(config, plan.dtype, plan.layout.degrees(),
                          {.rows = kManyRows, .logit_rows = kManyRows}, profile,
                          options.machine.calibration());
  const auto seconds = [&](int64_t rows, int64_t context) {
    return pricer.Decode(rows, context).all().seconds;
  };
  const double few = seconds(kFewRows, 1), many = seconds(kManyRows, 1),
               deep = seconds(kManyRows, 1 + kContext);
  uint64_t block_bytes = 0;
  for (const RankPlan& rank : plan.ranks) {
    block_bytes = std::max(block_bytes, kv::KvBlockBytes(rank.memory.kv_groups, options.digest));
  }
  return Prices({.row_seconds = std::max(0.0, many - few) / (kManyRows - kFewRows),
                 .context_token_seconds = std::max(0.0, deep - many) / (kManyRows * kContext),
                 .kv_token_seconds = static_cast<double>(block_bytes) / kernels::kBlockTokens /
                                     cost::PullRate(profile),
                 .move_seconds = profile.link_latency_s + profile.step_overhead_s});
}

}  // namespace forebay::layout
