#include "layout/role_plan.h"

#include <algorithm>

#include "layout/layout_search.h"
#include "layout/printed_plan.h"

namespace forebay::layout {
namespace {

base::Status CheckRoles(const RoleLayouts& roles, int num_devices) {
  const Layout &context = roles.context, &generation = roles.generation;
  if (context.num_devices() + generation.num_devices() != num_devices) {
    return {kLayoutDevices,
            fmt::format("--context {} needs {} devices and --generation {} needs {}, there are {}",
                        FormatLayout(context), context.num_devices(), FormatLayout(generation),
                        generation.num_devices(), num_devices)};
  }
  return {};
}

base::Result<RolePlan> PlanRole(GroupRole role, const Layout& layout, EngineOptions options,
                                const model::ModelConfig& config) {
  options.layout = layout;
  if (role == GroupRole::kGeneration)
    options.ship.mode = options.roles->generation_mode.value_or(options.ship.mode);
  options.job = nullptr;  // A role does a part of the job alone: no forecast is right.
  FB_ASSIGN_OR_RETURN(LayoutPlan plan, PlanLayout(options, config, layout.num_devices()));
  return RolePlan{role, std::move(plan), options.ship.mode};
}

}  // namespace

base::Result<std::vector<RolePlan>> PlanRoles(const EngineOptions& options,
                                              const model::ModelConfig& config) {
  const std::unique_ptr<schedule::Policy> policy = options.policy->make();
  std::vector<RolePlan> roles;
  if (policy->growth_is_free()) {
    FB_ASSIGN_OR_RETURN(LayoutPlan plan, PlanFreeGrowth(options, config));
    roles.push_back({GroupRole::kAll, std::move(plan), options.ship.mode});
    return roles;
  }
  if (!options.roles) {
    FB_ASSIGN_OR_RETURN(LayoutPlan plan, PlanJob(options, config));
    roles.push_back({GroupRole::kAll, std::move(plan), options.ship.mode});
    return roles;
  }
  FB_RETURN_IF_ERROR(CheckRoles(*options.roles, options.machine.devices.count));
  EngineOptions asked = options;
  while (true) {
    FB_ASSIGN_OR_RETURN(RolePlan context,
                        PlanRole(GroupRole::kContext, options.roles->context, asked, config));
    FB_ASSIGN_OR_RETURN(RolePlan generation,
                        PlanRole(GroupRole::kGeneration, options.roles->generation, asked, config));
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

std::vector<JobGroup> GroupsOf(const std::vector<RolePlan>& roles) {
  std::vector<std::pair<GroupRole, Layout>> layouts;
  for (const RolePlan& role : roles) layouts.emplace_back(role.role, role.plan.layout);
  return GroupsOf(layouts);
}

}  // namespace forebay::layout
