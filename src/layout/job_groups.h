// The groups of a job: those of its layouts, one behind the other. Whoever builds or runs them
// takes each as it stands in the list.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "forebay/group_role.h"
#include "layout/layout.h"

namespace forebay::layout {

struct JobGroup {
  GroupRole role = GroupRole::kAll;
  int first_device = 0;   // among the job's; the group's ranks are this one and those that follow
  int first_replica = 0;  // among the job's
  Layout layout;          // this group's alone

  // The job's device at this place of the group.
  int DeviceAt(const RankPlace& place) const { return first_device + RankOf(layout, place); }
};

// In the order of their devices.
std::vector<JobGroup> GroupsOf(const std::vector<std::pair<GroupRole, Layout>>& layouts);

}  // namespace forebay::layout
