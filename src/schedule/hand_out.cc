#include "schedule/policy.h"

namespace forebay::schedule {

bool Policy::HandOut(const QueueView& view) const {
  if (view.held == 0 || view.remaining < 0) return true;
  const int64_t unfinished = view.remaining + view.held_by_all;
  return view.held < (unfinished + view.replicas - 1) / view.replicas;
}

}  // namespace forebay::schedule
