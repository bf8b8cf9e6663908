// A job's plan: one role for all of a request's life, or context and generation groups (--context,
// --generation), each role with a layout of its own on devices of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/model.h"
#include "layout/job_groups.h"
#include "layout/layout_plan.h"
#include "schedule/step_mode.h"

namespace forebay::layout {

inline constexpr base::ErrorCode kRolesInvalid{"roles_invalid"};

// What a forecast says of the whole job.
struct ExpectedJob {
  int64_t ms = 0;              // 0: nothing
  cost::PriceOrigins origins;  // of the steps of all replicas
};

struct RolePlan {
  GroupRole role = GroupRole::kAll;
  LayoutPlan plan;
  schedule::WantedMode mode;  // its groups'
};

// What an engine is made from: nothing is left open. The roles stand in the order of their devices.
struct JobPlan {
  std::vector<RolePlan> roles;
  ExpectedJob expected;
  int64_t least_steps = 0;  // lower bound on the whole job's steps; 0: not known

  std::vector<JobGroup> Groups() const;
};

}  // namespace forebay::layout
