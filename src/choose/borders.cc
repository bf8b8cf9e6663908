#include "choose/borders.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "layout/group_plan.h"
#include "price/mode_price.h"

namespace forebay::choose {
namespace {

// Where no profile says what a step and a copy take.
constexpr double kDefaultThreshold = 16;
// Positions before a row in the step from which the threshold is computed.
constexpr int64_t kTypicalContext = 1024;
// The part of the experts that may have rows, where no profile says what copying the others costs:
// cores that copy do not compute meanwhile, so that half the bytes are a gain though nothing comes
// ahead.
constexpr double kWorthwhileShare = 0.5;

int64_t ContextOf(const layout::EngineOptions& options) {
  return options.limits.mean_context ? options.limits.mean_context : kTypicalContext;
}

// A group meets by the rule of the stage that ships longest.
void SetThreshold(const layout::EngineOptions& options, const price::StepPricer* pricer,
                  const price::RoutedExperts& experts, layout::LayoutPlan* plan) {
  const layout::MachinePlan& machine = plan->machine;
  const share::PoolPlan& first_pool = plan->ranks.front().request.pool.front();
  layout::GroupOptions& group = *plan->group;
  for (size_t rank = 0; rank < plan->ranks.size(); rank += static_cast<size_t>(plan->layout.tp)) {
    const std::vector<share::PoolPlan>& pools = plan->ranks[rank].request.pool;
    const price::ShipRule rule =
        pricer ? price::PlanShipping(
                     {*pricer, price::PullsOf(*pricer, machine, pools, plan->layout.pp), first_pool,
                      experts},
                     *pools.front().ship,
                     {machine.max_num_batched_tokens,
                      std::min(machine.max_num_seqs, machine.max_num_batched_tokens)},
                     ContextOf(options), options.ship.patience)
               : price::ShipRule{kDefaultThreshold, {}, options.ship.patience};
    if (std::isinf(rule.threshold)) group.by_load = false;
    group.patience = rule.patience;
    if (rule.threshold > group.threshold) group.tolerated = rule.tolerated;
    // Where most rounds could not ship, meeting for them would only cost.
    group.threshold = std::max(group.threshold, std::min<double>(rule.threshold, group.most_rows));
  }
}

int64_t RoutedRows(const layout::EngineOptions& options, const price::StepPricer* pricer,
                   const price::RoutedExperts& experts, const layout::LayoutPlan& plan) {
  if (pricer != nullptr) {
    const std::vector<share::PoolPlan>& pools = plan.ranks.front().request.pool;
    return price::RoutedRows({*pricer, price::PullsOf(*pricer, plan.machine, pools, plan.layout.pp),
                              pools.front(), experts},
                             ContextOf(options));
  }
  int64_t rows = 0;
  while (experts.Share(rows + 1) < kWorthwhileShare) ++rows;
  return rows;
}

}  // namespace

void SetBorders(const layout::EngineOptions& options, const price::StepPricer* pricer,
                layout::LayoutPlan* plan) {
  if (!plan->may_ship()) return;
  const price::RoutedExperts experts(plan->config, plan->routing.get());
  if (plan->group && options.ship.threshold <= 0) SetThreshold(options, pricer, experts, plan);
  if (!layout::AskedRoutedRows(options, plan->ranks.front().request.pool))
    plan->routed_rows = RoutedRows(options, pricer, experts, *plan);
}

}  // namespace forebay::choose
