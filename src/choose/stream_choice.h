// How many blocks of running choices may lie below the device and be read from there layer by layer
// in every step (--kv-offload): more of them make a larger batch, and more bytes that each step
// brings up.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "layout/layout_plan.h"
#include "price/step_price.h"

namespace forebay::choose {

inline constexpr base::ErrorCode kCannotStream{"kv_offload_invalid"};

// What a replica comes to with room for so many.
struct StreamTrial {
  int32_t blocks = 0;
  double tokens_per_s = 0;  // in the job, or in a steady state of full batches
  double exposed = 0;       // the part of a full batch's step in which compute waits for copies
  // MachinePlan's: what a step may have of either.
  int32_t max_num_seqs = 0, max_num_batched_tokens = 0;
};

// The trial to take of these, which ascend from none. Pure. The fewest that give about the most
// tokens a second; none where that is hardly more than without.
StreamTrial ChooseFastest(const std::vector<StreamTrial>& trials);
// Pure. The most whose copies stay hidden behind the step.
StreamTrial ChooseHidden(const std::vector<StreamTrial>& trials);

// Why nothing can be streamed under the plan; empty: it can.
std::string CannotStream(const layout::TierOptions& tier, const layout::LayoutPlan& plan);

// Plans *plan anew with as many streamed blocks as the options have it; it is one without.
// `pricer`: of its ranks; `plan_of`: the plan of a draft. Where that is left open and pays, it also
// sets those of the machine's limits of a step that the options leave open; never so that the
// longest context would be another, on which results depend. Returns Decision::streaming. Errors:
// kCannotStream where it is asked for and cannot be.
using PlanOf = std::function<base::Result<layout::LayoutPlan>(const layout::LayoutDraft& draft)>;
base::Result<std::string> ChooseStreaming(const layout::EngineOptions& options,
                                          const std::function<const price::StepPricer&()>& pricer,
                                          const PlanOf& plan_of, layout::LayoutPlan* plan);

}  // namespace forebay::choose
