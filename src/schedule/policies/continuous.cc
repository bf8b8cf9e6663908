// The default: choices join and leave the batch at every step (Orca, OSDI 2022, section 3.1),
// prompts are computed in chunks beside the decoding rows (Sarathi-Serve, OSDI 2024, section 4).
#include "schedule/packing.h"
#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

class Continuous final : public Policy {
 public:
  std::string_view name() const override { return "continuous"; }

  void Plan(const StepView& view, StepPlan* plan) const override {
    plan->Begin();
    const StepRoom room = PackRunning(view, plan);
    if (plan->preempt.empty()) PackWaiting(view, view.limits.block_tokens, room, plan);
  }
};

}  // namespace

std::unique_ptr<Policy> MakeContinuous() { return std::make_unique<Continuous>(); }

}  // namespace forebay::schedule
