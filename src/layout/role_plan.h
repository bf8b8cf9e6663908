// What the options come to for each role of the job's groups: one for all of a request's life, or
// context and generation groups (--context, --generation), each with a layout of its own on devices
// of its own. Pure, as PlanLayout is.
#pragma once

#include <vector>

#include "layout/job_groups.h"
#include "layout/layout_plan.h"

namespace forebay::layout {

inline constexpr base::ErrorCode kRolesInvalid{"roles_invalid"};

struct RolePlan {
  GroupRole role = GroupRole::kAll;
  LayoutPlan plan;
  schedule::WantedMode mode;  // its groups'
};

// In the order of their devices. All have one max_model_len, which is part of an answer: that of
// the role whose KV cache holds less. Errors are those of PlanJob; of two roles also
// kLayoutDevices, if they need more or fewer devices than there are.
base::Result<std::vector<RolePlan>> PlanRoles(const EngineOptions& options,
                                              const model::ModelConfig& config);

std::vector<JobGroup> GroupsOf(const std::vector<RolePlan>& roles);

}  // namespace forebay::layout
