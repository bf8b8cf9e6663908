#include "choose/decide_job.h"

#include <algorithm>

#include "choose/printed_plan.h"

namespace forebay::choose {
namespace {

base::Status CheckRoles(const layout::RoleLayouts& roles, int num_devices) {
  const layout::Layout &context = roles.context, &generation = roles.generation;
  if (context.num_devices() + generation.num_devices() != num_devices) {
    return {layout::kLayoutDevices,
            fmt::format("--context {} needs {} devices and --generation {} needs {}, there are {}",
                        layout::FormatLayout(context), context.num_devices(),
                        layout::FormatLayout(generation), generation.num_devices(), num_devices)};
  }
  return {};
}

base::Result<RoleDecision> DecideRole(GroupRole role, const layout::Layout& layout,
                                      layout::EngineOptions options,
                                      const model::ModelConfig& config) {
  options.layout = layout;
  if (role == GroupRole::kGeneration)
    options.ship.mode = options.roles->generation_mode.value_or(options.ship.mode);
  // A role does a part of the job alone: no forecast is right.
  options.job = nullptr;
  options.job_held = 0;
  FB_ASSIGN_OR_RETURN(Decision plan, Decide(options, config, layout.num_devices()));
  return RoleDecision{role, std::move(plan), options.ship.mode};
}

}  // namespace

base::Result<std::vector<RoleDecision>> DecideJob(const layout::EngineOptions& options,
                                                  const model::ModelConfig& config,
                                                  const TellSearch& tell) {
  const std::unique_ptr<schedule::Policy> policy = options.policy->make();
  std::vector<RoleDecision> roles;
  if (policy->growth_is_free()) {
    FB_ASSIGN_OR_RETURN(Decision plan, DecideFreeGrowth(options, config));
    roles.push_back({GroupRole::kAll, std::move(plan), options.ship.mode});
    return roles;
  }
  if (!options.roles) {
    FB_ASSIGN_OR_RETURN(Decision plan, DecideLayout(options, config, tell));
    roles.push_back({GroupRole::kAll, std::move(plan), options.ship.mode});
    return roles;
  }
  FB_RETURN_IF_ERROR(CheckRoles(*options.roles, options.machine.devices.count));
  layout::EngineOptions asked = options;
  while (true) {
    FB_ASSIGN_OR_RETURN(RoleDecision context,
                        DecideRole(GroupRole::kContext, options.roles->context, asked, config));
    FB_ASSIGN_OR_RETURN(
        RoleDecision generation,
        DecideRole(GroupRole::kGeneration, options.roles->generation, asked, config));
    const int64_t lengths[] = {context.plan.ranks[0].memory.max_model_len,
                               generation.plan.ranks[0].memory.max_model_len};
    if (lengths[0] == lengths[1]) {
      roles.push_back(std::move(context));
      roles.push_back(std::move(generation));
      return roles;
    }
    asked.limits.max_model_len = std::min(lengths[0], lengths[1]);
  }
}

}  // namespace forebay::choose
