#include "engine/steal_price.h"

#include <algorithm>

#include "engine/step_price.h"
#include "kernels/step_batch.h"

namespace forebay::engine {
namespace {

// Steps of the job's tail: what a row adds to one of few rows, and what a token of context adds.
constexpr int64_t kFewRows = 4, kManyRows = 16, kContext = 1024;

}  // namespace

base::Result<std::optional<schedule::StealPrices>> PriceStealing(const EngineOptions& options, const model::ModelConfig& config,
                                                                 const LayoutPlan& plan) {
  using Prices = std::optional<schedule::StealPrices>;
  if (options.steal != "auto" && options.steal != "off" && options.steal != "always") {
    return base::Status(base::kInvalidArgument, fmt::format("--steal \"{}\" is unknown; expected auto, off or always", options.steal));
  }
  if (options.steal == "off" || plan.layout.dp == 1) return Prices();
  if (options.steal == "always") return Prices({.row_seconds = 1});
  FB_ASSIGN_OR_RETURN(const cost::DeviceProfile profile, PriceProfile(plan.machine));
  const auto calibration = options.sim_uncalibrated ? cost::Calibration::kUncalibrated : cost::Calibration::kCalibrated;
  const StepPricer pricer(config, plan.dtype, plan.layout.tp, {.rows = kManyRows, .logit_rows = kManyRows}, profile, calibration);
  const auto seconds = [&](int64_t rows, int64_t context) { return pricer.Decode(rows, context).all().seconds; };
  const double few = seconds(kFewRows, 1), many = seconds(kManyRows, 1), deep = seconds(kManyRows, 1 + kContext);
  uint64_t block_bytes = 0;
  for (const RankPlan& rank : plan.ranks) {
    block_bytes = std::max(block_bytes, model::KvBlockBytes(rank.memory.kv_groups, options.digest));
  }
  return Prices({
      .row_seconds = std::max(0.0, many - few) / (kManyRows - kFewRows),
      .context_token_seconds = std::max(0.0, deep - many) / (kManyRows * kContext),
      .kv_token_seconds = static_cast<double>(block_bytes) / kernels::kBlockTokens / cost::PullRate(profile),
      .move_seconds = profile.link_latency_s + profile.step_overhead_s});
}

}  // namespace forebay::engine
