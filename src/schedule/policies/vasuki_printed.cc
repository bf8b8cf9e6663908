// Vasuki's scheduler in the reading that gives its figures, for the record: prompts take memory, in
// order of arrival, and what is generated takes none, since it would have gone below in time that
// costs nothing (sections 5.1 and 5.2). No machine does so: the memory comes from a plan that only
// simulated devices can have (choose/printed_plan.h).
#include <algorithm>

#include "schedule/packing.h"
#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

class VasukiPrinted final : public Policy {
 public:
  std::string_view name() const override { return "vasuki-printed"; }
  StepPreset preset() const override {
    return {.max_num_seqs = 128, .max_num_batched_tokens = 512};
  }
  bool growth_is_free() const override { return true; }

  void Plan(const StepView& view, StepPlan* plan) const override {
    plan->Begin(view.mode);
    StepRoom room = PackRunning(view, plan);
    if (!plan->preempt.empty()) return;
    const Limits& limits = view.limits;
    int64_t blocks = limits.prompt_blocks > 0 ? limits.prompt_blocks : limits.total_blocks;
    for (const std::vector<RunningView>* choices : {&view.running, &view.elsewhere}) {
      for (const RunningView& choice : *choices)
        blocks -= BlocksFor(choice.known_tokens - choice.generated, limits);
    }
    // One always runs.
    int64_t fitting = view.running.empty() && view.elsewhere.empty() ? 1 : 0, admitted = 0;
    for (const WaitingView& choice : view.waiting) {
      blocks -= BlocksFor(choice.known_tokens, limits);
      if (blocks < 0) break;
      fitting = std::max(fitting, ++admitted);
    }
    room.choices = std::min(room.choices, fitting);
    PackWaiting(view, 0, room, plan);
  }
};

}  // namespace

std::unique_ptr<Policy> MakeVasukiPrinted() { return std::make_unique<VasukiPrinted>(); }

}  // namespace forebay::schedule
