#include "layout/job_plan.h"

#include <utility>

namespace forebay::layout {

std::vector<JobGroup> JobPlan::Groups() const {
  std::vector<std::pair<GroupRole, Layout>> layouts;
  for (const RolePlan& role : roles) layouts.emplace_back(role.role, role.plan.layout);
  return GroupsOf(layouts);
}

}  // namespace forebay::layout
