// Vasuki's greedy bin packing (section 5.2) with what the paper leaves out of it, growth: requests
// come in makespan's order, and each is placed where it first fits beside those before it, as
// `forebay pack` places them. A choice that does not fit yet keeps its place, and shorter or
// smaller ones behind it overtake where they leave it that place.
#include "schedule/growth.h"
#include "schedule/packing.h"
#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

class Packed final : public Policy {
 public:
  std::string_view name() const override { return "packed"; }
  bool wants_lengths() const override { return true; }
  bool orders_lines() const override { return true; }

  void Plan(const StepView& view, StepPlan* plan) const override {
    plan->Begin();
    const StepRoom room = PackRunning(view, plan);
    if (!plan->preempt.empty() || room.choices <= 0 || view.waiting.empty()) return;
    ChoicesThatFitFirst(view, kFill * view.overcommit, &plan->marks);
    // One always runs.
    if (view.running.empty() && view.elsewhere.empty()) plan->marks.front() = true;
    PackWaiting(view, view.limits.block_tokens, room, plan, 0, &plan->marks);
  }
};

}  // namespace

std::unique_ptr<Policy> MakePacked() { return std::make_unique<Packed>(); }

}  // namespace forebay::schedule
