// vLLM's first scheduler (SOSP 2023, section 4.5), to compare with: whole prompts before any
// decoding row, in steps of their own, so that decoding stands still meanwhile; admission as
// sarathi's. A prompt that is longer than a step is computed in chunks, alone.
#include <algorithm>
#include <vector>

#include "schedule/packing.h"
#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

class Vllm final : public Policy {
 public:
  std::string_view name() const override { return "vllm"; }
  StepPreset preset() const override { return {.max_num_seqs = 128}; }

  void Plan(const StepView& view, StepPlan* plan) const override {
    plan->Begin();
    StepRoom room = PackRunning(view, plan);
    if (!plan->preempt.empty()) return;
    const auto decodes = [&](const RowsOf& entry) { return view.running[entry.index].decoding; };
    const bool unfinished = !std::ranges::all_of(plan->run, decodes);
    if (!unfinished) {
      room.rows = view.limits.max_num_batched_tokens;  // decoding rows would not be beside them
      PackWaiting(view, 0, room, plan, Watermark(view));
      KeepWholePrompts(view, plan);
    }
    if (unfinished || !plan->admit.empty()) std::erase_if(plan->run, decodes);
  }
};

}  // namespace

std::unique_ptr<Policy> MakeVllm() { return std::make_unique<Vllm>(); }

}  // namespace forebay::schedule
