// For the job's end alone: as many choices as the KV cache holds until they end, by their foreseen
// lengths, each where the others grow and end. "continuous" looks a block ahead and fills the cache
// until it must preempt; "adaptive" keeps room for all of every choice at once, which none needs
// before it ends. Where blocks end, the latest goes: who would lose the fewest rows for what others
// get is the one with most to come, which is the answer that ends last (bench/results/vasuki.md).
#include <algorithm>

#include "schedule/growth.h"
#include "schedule/packing.h"
#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

class Makespan final : public Policy {
 public:
  std::string_view name() const override { return "makespan"; }
  bool wants_lengths() const override { return true; }
  bool orders_lines() const override { return true; }

  void Plan(const StepView& view, StepPlan* plan) const override {
    plan->Begin();
    StepRoom room = PackRunning(view, plan);
    if (!plan->preempt.empty() || room.choices <= 0 || view.waiting.empty()) return;
    // One always runs.
    const int64_t alone = view.running.empty() && view.elsewhere.empty() ? 1 : 0;
    room.choices =
        std::min(room.choices, std::max(alone, ChoicesThatFit(view, kFill * view.overcommit)));
    PackWaiting(view, view.limits.block_tokens, room, plan);
  }
};

}  // namespace

std::unique_ptr<Policy> MakeMakespan() { return std::make_unique<Makespan>(); }

}  // namespace forebay::schedule
