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

  void Plan(const StepView& view, StepPlan* plan) const override {
    plan->Begin(view.mode);
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

 private:
  // The last admitted one may be a part of its prompt: only one that fits no step begins so.
  static void KeepWholePrompts(const StepView& view, StepPlan* plan) {
    if (plan->admit.empty()) return;
    // One that fits no step's blocks begins alone.
    if (view.running.empty() && plan->admit.size() == 1) return;
    const RowsOf last = plan->admit.back();
    const WaitingView& choice = view.waiting[last.index];
    const int64_t rows = choice.known_tokens - choice.cached_tokens;
    const bool fits_a_step = rows <= view.limits.max_num_batched_tokens;
    if (last.rows < rows && (fits_a_step || plan->admit.size() > 1)) plan->admit.pop_back();
  }
};

}  // namespace

std::unique_ptr<Policy> MakeVllm() { return std::make_unique<Vllm>(); }

}  // namespace forebay::schedule
