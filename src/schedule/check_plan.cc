#include <algorithm>

#include "base/check.h"
#include "schedule/packing.h"
#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

// Marks `index` of `what`; it must be within the list and new.
void MarkOnce(std::vector<bool>* seen, int32_t index, const char* what) {
  FB_CHECK(index >= 0 && index < static_cast<int32_t>(seen->size()), "{} {} of {}", what, index,
           seen->size());
  FB_CHECK(!(*seen)[index], "{} {} is planned twice", what, index);
  (*seen)[index] = true;
}

}  // namespace

void CheckPlan(const StepView& view, const StepPlan& plan) {
  const Limits& limits = view.limits;
  std::vector<bool> running(view.running.size()), waiting(view.waiting.size());
  const size_t survivors = view.running.size() - std::min(plan.preempt.size(), view.running.size());
  for (const int32_t index : plan.preempt) {
    MarkOnce(&running, index, "running choice");
    FB_CHECK(index > 0, "the first running choice is preempted");
  }
  int64_t rows = 0, blocks = 0;
  for (const RowsOf& entry : plan.run) {
    MarkOnce(&running, entry.index, "running choice");
    const RunningView& choice = view.running[entry.index];
    const int64_t left = choice.known_tokens - choice.computed_tokens;
    FB_CHECK(entry.rows > 0 && entry.rows <= (choice.decoding ? 1 : left),
             "running choice {}: {} rows of {}", entry.index, entry.rows, left);
    rows += entry.rows;
    blocks += MissingBlocks(choice.computed_tokens + entry.rows, choice.reserved_blocks, limits);
  }
  for (size_t i = 0; i < plan.admit.size(); ++i) {
    const RowsOf& entry = plan.admit[i];
    MarkOnce(&waiting, entry.index, "waiting choice");
    const WaitingView& choice = view.waiting[entry.index];
    const int64_t left = choice.known_tokens - choice.cached_tokens;
    FB_CHECK(i == 0 || plan.admit[i - 1].index < entry.index,
             "waiting choice {} is admitted out of order", entry.index);
    FB_CHECK(entry.rows > 0 && entry.rows <= left, "waiting choice {}: {} rows of {}", entry.index,
             entry.rows, left);
    FB_CHECK(!limits.whole_prompts || entry.rows == left,
             "waiting choice {}: {} rows of {} are cut", entry.index, entry.rows, left);
    rows += entry.rows;
    blocks += MissingBlocks(choice.cached_tokens + entry.rows,
                            choice.held_tokens / limits.block_tokens, limits);
  }
  const int64_t choices = static_cast<int64_t>(survivors + plan.admit.size());
  FB_CHECK(rows <= limits.max_num_batched_tokens, "{} rows, at most {}", rows,
           limits.max_num_batched_tokens);
  FB_CHECK(plan.admit.empty() || choices <= limits.max_num_seqs, "{} choices, at most {}", choices,
           limits.max_num_seqs);
  const int64_t available = AvailableAfter(view, plan.preempt);
  FB_CHECK(blocks <= available, "{} blocks wanted, {} available", blocks, available);
  FB_CHECK(rows > 0 || !view.elsewhere.empty() || (view.running.empty() && view.waiting.empty()),
           "nothing is planned for {} running and {} waiting choices", view.running.size(),
           view.waiting.size());
}

}  // namespace forebay::schedule
