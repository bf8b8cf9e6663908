// The classical baseline: a batch is admitted only when the last one has finished, with room for
// all its tokens.
#include <limits>

#include "schedule/packing.h"
#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

class StaticBatch final : public Policy {
 public:
  std::string_view name() const override { return "static_batch"; }

  void Plan(const StepView& view, StepPlan* plan) const override {
    plan->Begin();
    const StepRoom room = PackRunning(view, plan);
    if (view.running.empty()) PackWaiting(view, std::numeric_limits<int64_t>::max(), room, plan);
  }
};

}  // namespace

std::unique_ptr<Policy> MakeStaticBatch() { return std::make_unique<StaticBatch>(); }

}  // namespace forebay::schedule
