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

bool SharesWeights(const Layout& layout) { return layout.pools() && layout.pool_ranks() > 1; }

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

base::Status CheckModes(const EngineOptions& options) {
  const auto refuse = [](const char* flag, const schedule::WantedMode& mode, const Layout& layout) {
    return base::Status(
        base::kInvalidArgument,
        fmt::format("{} {} with {}: no ranks share weights; expected several ranks, and "
                    "weights=by_layer, striped or sharded, or experts=by_expert",
                    flag, schedule::Name(mode), FormatLayout(layout)));
  };
  const std::optional<RoleLayouts>& roles = options.roles;
  const Layout copies{.dp = options.machine.devices.count};
  const Layout first = roles ? roles->context : options.layout.value_or(copies);
  // kRouted has an error of its own where each role is planned.
  const auto is_mute = [](const schedule::WantedMode& mode, bool shares) {
    return mode && mode->ffn != FfnMode::kRouted && !shares;
  };
  const bool shares = SharesWeights(first) || (roles && SharesWeights(roles->generation));
  // Where layouts are compared those alone share weights in which that pays.
  if (is_mute(options.ship.mode, shares) && !options.layout_by_job)
    return refuse("--mode", options.ship.mode, first);
  const schedule::WantedMode generation_mode =
      roles ? roles->generation_mode.value_or(std::nullopt) : std::nullopt;
  if (!is_mute(generation_mode, roles && SharesWeights(roles->generation))) return {};
  return refuse("--generation-mode", generation_mode, roles->generation);
}

std::vector<JobGroup> GroupsOf(const std::vector<RolePlan>& roles) {
  std::vector<std::pair<GroupRole, Layout>> layouts;
  for (const RolePlan& role : roles) layouts.emplace_back(role.role, role.plan.layout);
  return GroupsOf(layouts);
}

}  // namespace forebay::layout
