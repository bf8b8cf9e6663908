// What an engine is made from, of options that leave something open: the layout, its plan
// (choose/decide.h), and that for each role of the job's groups. Pure, as Decide is.
#pragma once

#include <vector>

#include "choose/decide.h"
#include "choose/layout_search.h"
#include "layout/job_plan.h"

namespace forebay::choose {

struct RoleDecision {
  GroupRole role = GroupRole::kAll;
  Decision plan;
  schedule::WantedMode mode;  // its groups'
};

// In the order of their devices. All have one max_model_len, which is part of an answer: that of
// the role whose KV cache holds less. Errors are those of DecideLayout; of two roles also
// layout::kLayoutDevices, if they need more or fewer devices than there are.
// `tell`: as DecideLayout has it.
base::Result<std::vector<RoleDecision>> DecideJob(const layout::EngineOptions& options,
                                                  const model::ModelConfig& config,
                                                  const TellSearch& tell = {});

}  // namespace forebay::choose
