#include "choose/decide_job.h"

#include <utility>

#include "choose/printed_plan.h"

namespace forebay::choose {

base::Result<std::vector<RoleDecision>> DecideJob(const layout::EngineOptions& options,
                                                  const model::ModelConfig& config,
                                                  const TellSearch& tell) {
  const bool is_free = options.policy->make()->growth_is_free();
  if (options.roles && !is_free) return DecideRoles(options, config);
  FB_ASSIGN_OR_RETURN(Decision plan, is_free ? DecideFreeGrowth(options, config)
                                             : DecideLayout(options, config, tell));
  const std::shared_ptr<Decision> generation = std::exchange(plan.generation, nullptr);
  std::vector<RoleDecision> roles;
  roles.push_back(
      {generation ? GroupRole::kContext : GroupRole::kAll, std::move(plan), options.ship.mode});
  if (generation)
    roles.push_back({GroupRole::kGeneration, std::move(*generation), options.ship.mode});
  return roles;
}

}  // namespace forebay::choose
