#include "choose/role_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace forebay::choose {
namespace {

// The best by their bounds: a forecast tells which of two that are near each other is.
constexpr size_t kSplits = 2;

// What a role takes on so many replicas.
double ContextSeconds(const JobForecast& job, int replicas) {
  return job.context_seconds / replicas;
}
double GenerationSeconds(const JobForecast& job, int replicas) {
  return job.generation_seconds[static_cast<size_t>(replicas - 1)];
}

// The cut that serves a role soonest on so many devices, and its seconds; nothing: none has so few.
struct RoleCut {
  layout::Layout layout;
  double seconds = 0;
};
std::optional<RoleCut> SoonestOn(int devices, std::span<const CopiesForecast> copies,
                                 double (*seconds_of)(const JobForecast& job, int replicas)) {
  std::optional<RoleCut> soonest;
  for (const auto& [layout, job] : copies) {
    const int ranks = layout.ranks_per_replica(), replicas = devices / ranks;
    if (replicas == 0 || devices % ranks != 0 ||
        replicas > static_cast<int>(job->generation_seconds.size()))
      continue;
    const double seconds = seconds_of(*job, replicas);
    if (soonest && soonest->seconds <= seconds) continue;
    soonest = {layout, seconds};
    soonest->layout.dp = replicas;
  }
  return soonest;
}

// The ranks alone; the whole of a layout that shares weights.
std::string ShortForm(const layout::Layout& layout) {
  if (layout.pools()) return layout::FormatLayout(layout);
  std::string text;
  for (const auto& [key, ranks] :
       {std::pair("groups", layout.groups), std::pair("dp", layout.dp), std::pair("pp", layout.pp),
        std::pair("sp", layout.sp), std::pair("tp", layout.tp)}) {
    if (ranks > 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, ranks);
  }
  return text.empty() ? "dp=1" : text;
}

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

std::vector<RoleSplit> SplitDevices(int devices, std::span<const CopiesForecast> copies) {
  std::vector<RoleSplit> splits;
  for (int first = 1; first < devices; ++first) {
    const std::optional<RoleCut> context = SoonestOn(first, copies, ContextSeconds),
                                 generation = SoonestOn(devices - first, copies, GenerationSeconds);
    if (!context || !generation) continue;
    splits.push_back({.roles = {context->layout, generation->layout},
                      .least_seconds = std::max(context->seconds, generation->seconds)});
  }
  std::ranges::stable_sort(splits, {}, &RoleSplit::least_seconds);
  splits.resize(std::min(splits.size(), kSplits));
  return splits;
}

std::string FormatRoles(const layout::RoleLayouts& roles) {
  return fmt::format("--context {} --generation {}", ShortForm(roles.context),
                     ShortForm(roles.generation));
}

base::Result<std::vector<RoleDecision>> DecideRoles(const layout::EngineOptions& options,
                                                    const model::ModelConfig& config) {
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
      std::vector<RoleDecision> roles;
      roles.push_back(std::move(context));
      roles.push_back(std::move(generation));
      return roles;
    }
    asked.limits.max_model_len = std::min(lengths[0], lengths[1]);
  }
}

}  // namespace forebay::choose
