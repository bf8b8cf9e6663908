#include "schedule/step_share.h"

#include <algorithm>

#include "base/units.h"

namespace forebay::schedule {

StepShare ShareOf(const Limits& limits, const ShareView& view) {
  const auto even = [&](int64_t choices) {
    return static_cast<int64_t>(
        base::CeilDiv(static_cast<uint64_t>(choices), static_cast<uint64_t>(view.steps)));
  };
  StepShare share{.running = std::min(even(view.running), view.running - view.in_flight),
                  .limits = limits};
  // Choices of other steps keep their places, and so do those that are lent.
  const int64_t elsewhere = view.running - share.running;
  share.limits.total_blocks -= static_cast<int32_t>(view.lent_blocks);
  share.limits.max_num_seqs = static_cast<int32_t>(
      std::min(limits.max_num_seqs - elsewhere - view.loans, even(view.running + view.waiting)));
  return share;
}

}  // namespace forebay::schedule
