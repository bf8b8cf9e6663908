#include "layout/job_groups.h"

namespace forebay::layout {

std::vector<JobGroup> GroupsOf(const std::vector<std::pair<GroupRole, Layout>>& layouts) {
  std::vector<JobGroup> groups;
  int device = 0, replica = 0;
  for (const auto& [role, layout] : layouts) {
    for (int i = 0; i < layout.groups; ++i) {
      JobGroup& group = groups.emplace_back(JobGroup{role, device, replica, layout});
      group.layout.groups = 1;
      device += layout.ranks_per_group();
      replica += layout.dp;
    }
  }
  return groups;
}

}  // namespace forebay::layout
