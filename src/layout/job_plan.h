// A job's plan: one role for all of a request's life, or context and generation groups (--context,
// --generation), each role with a layout of its own on devices of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/job_groups.h"
#include "layout/layout_plan.h"
#include "schedule/step_mode.h"

namespace forebay::layout {

inline constexpr base::ErrorCode kRolesInvalid{"roles_invalid"};

struct RolePlan {
  GroupRole role = GroupRole::kAll;
  LayoutPlan plan;
  schedule::WantedMode mode;  // its groups'
};

// What an engine is made from: nothing is left open. The roles stand in the order of their devices.
struct JobPlan {
  std::vector<RolePlan> roles;
  int64_t expected_ms = 0;  // forecast of the whole job; 0: not known
  int64_t least_steps = 0;  // lower bound on the whole job's steps; 0: not known

  std::vector<JobGroup> Groups() const;
};

}  // namespace forebay::layout
