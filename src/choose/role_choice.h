// Which devices compute prompts and which go on with them (layout::RoleLayouts), and the plans of
// both. Pure, as Decide is.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "choose/decide.h"
#include "forebay/group_role.h"
#include "schedule/step_mode.h"

namespace forebay::choose {

// Copies of the model on all devices, each cut so.
struct CopiesForecast {
  layout::Layout layout;
  const JobForecast* job = nullptr;  // context_seconds and generation_seconds count
};

// Two roles that share out all devices.
struct RoleSplit {
  layout::RoleLayouts roles;
  // What the slower role takes, if it never waits for the other: the job takes no less.
  double least_seconds = 0;
};

// As many splits of the devices as are worth a forecast, those with the least least_seconds first.
// Each role has the cut of `copies` that serves it soonest on its devices.
std::vector<RoleSplit> SplitDevices(int devices, std::span<const CopiesForecast> copies);

// "--context dp=2 --generation tp=2".
std::string FormatRoles(const layout::RoleLayouts& roles);

struct RoleDecision {
  GroupRole role = GroupRole::kAll;
  Decision plan;
  schedule::WantedMode mode;  // its groups'
};

// The plans of options.roles, in the order of their devices. Both have one max_model_len, which is
// part of an answer: that of the role whose KV cache holds less. Errors are those of Decide, and
// layout::kLayoutDevices, if they need more or fewer devices than there are.
base::Result<std::vector<RoleDecision>> DecideRoles(const layout::EngineOptions& options,
                                                    const model::ModelConfig& config);

}  // namespace forebay::choose
