// Whole prompts, as many of those that wait as fit beside the running rows into the step's tokens:
// what an engine does that cuts no prompt into chunks (TensorRT-LLM without chunked context; DWDP's
// context servers). Admission foresees growth as `continuous` does. A prompt that is longer than a
// step is computed in chunks.
#include "schedule/packing.h"
#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

class Whole final : public Policy {
 public:
  std::string_view name() const override { return "whole"; }

  void Plan(const StepView& view, StepPlan* plan) const override {
    plan->Begin();
    const StepRoom room = PackRunning(view, plan);
    if (!plan->preempt.empty()) return;
    PackWaiting(view, view.limits.block_tokens, room, plan);
    KeepWholePrompts(view, plan);
  }
};

}  // namespace

std::unique_ptr<Policy> MakeWhole() { return std::make_unique<Whole>(); }

}  // namespace forebay::schedule
