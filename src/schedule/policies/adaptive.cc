// As many choices as the KV cache holds at their mean length (SiDP, section 5.1, the second
// batching strategy): few preemptions, where "continuous" fills the cache with what is known so far
// and preempts when it grows (the first).
#include <algorithm>

#include "schedule/packing.h"
#include "schedule/policy.h"
#include "schedule/survival.h"

namespace forebay::schedule {
namespace {

double MeanTokens(const StepView& view) {
  if (view.mean_tokens > 0) return view.mean_tokens;
  int64_t sum = 0;
  const auto add = [&](const auto& choice) {
    sum += choice.known_tokens + std::min(choice.remaining_output, kUnknownOutput);
  };
  std::ranges::for_each(view.running, add);
  std::ranges::for_each(view.waiting, add);
  return static_cast<double>(sum) /
         static_cast<double>(std::max<size_t>(1, view.running.size() + view.waiting.size()));
}

class Adaptive final : public Policy {
 public:
  std::string_view name() const override { return "adaptive"; }

  void Plan(const StepView& view, StepPlan* plan) const override {
    plan->Begin();
    StepRoom room = PackRunning(view, plan);
    if (!plan->preempt.empty()) return;
    const double kv_tokens =
        static_cast<double>(view.limits.total_blocks) * view.limits.block_tokens;
    // One always runs.
    const auto batch =
        std::max<int64_t>(1, static_cast<int64_t>(kv_tokens / std::max(1.0, MeanTokens(view))));
    room.choices = std::min(room.choices, batch - static_cast<int64_t>(view.running.size()));
    PackWaiting(view, view.limits.block_tokens, room, plan);
  }
};

}  // namespace

std::unique_ptr<Policy> MakeAdaptive() { return std::make_unique<Adaptive>(); }

}  // namespace forebay::schedule
