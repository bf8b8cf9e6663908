#include "layout/layout_plan.h"

#include <algorithm>

namespace forebay::layout {

base::Status LayoutPlan::Fits() const {
  for (const RankPlan& rank : ranks) FB_RETURN_IF_ERROR(CheckFits(rank.memory, rank.request));
  return base::Status::Ok();
}

uint64_t LayoutPlan::KvBlockBytes(bool digest) const {
  uint64_t bytes = 0;
  for (const RankPlan& rank : ranks)
    bytes = std::max(bytes, kv::KvBlockBytes(rank.memory.kv_groups, digest));
  return bytes;
}

}  // namespace forebay::layout
