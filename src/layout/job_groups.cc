#include "layout/job_groups.h"

namespace forebay::layout {

std::vector<JobGroup> GroupsOf(const Layout& layout) {
  std::vector<JobGroup> groups;
  for (int device = 0; device < layout.num_devices(); device += layout.ranks_per_group()) {
    groups.push_back({.first_device = device, .layout = layout});
    groups.back().layout.groups = 1;
  }
  return groups;
}

}  // namespace forebay::layout
