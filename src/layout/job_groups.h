// The groups of a job: a layout's list of them. They are alike so far, but whoever builds or runs
// them takes each as it stands in the list.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/layout.h"

namespace forebay::layout {

// What a group does of a request's life.
//   kAll   it reads prompts and writes answers
enum class GroupRole : uint8_t { kAll };

struct JobGroup {
  GroupRole role = GroupRole::kAll;
  int first_device = 0;  // of the job's; the group's ranks are this one and those that follow
  Layout layout;         // of this group alone
};

// In the order of their devices.
std::vector<JobGroup> GroupsOf(const Layout& layout);

}  // namespace forebay::layout
