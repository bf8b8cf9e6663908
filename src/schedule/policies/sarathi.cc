// Sarathi-Serve's scheduler (OSDI 2024, algorithm 3), to compare with: decoding rows first, then
// chunks of prompts; first come, first served; a choice is admitted when the blocks of its prompt
// are there and a hundredth of all stays free. Growth is not foreseen: the latest gives way.
#include "schedule/packing.h"
#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

class Sarathi final : public Policy {
 public:
  std::string_view name() const override { return "sarathi"; }
  StepPreset preset() const override {
    return {.max_num_seqs = 128, .max_num_batched_tokens = 512};
  }

  void Plan(const StepView& view, StepPlan* plan) const override {
    plan->Begin();
    const StepRoom room = PackRunning(view, plan);
    if (plan->preempt.empty()) PackWaiting(view, 0, room, plan, Watermark(view));
  }
};

}  // namespace

std::unique_ptr<Policy> MakeSarathi() { return std::make_unique<Sarathi>(); }

}  // namespace forebay::schedule
