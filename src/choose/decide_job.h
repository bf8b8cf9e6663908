// What an engine is made from, of options that leave something open: the layout, its plan
// (choose/decide.h), and that for each role of the job's groups. Pure, as Decide is.
#pragma once

#include <vector>

#include "choose/layout_search.h"
#include "choose/role_choice.h"

namespace forebay::choose {

// In the order of their devices: two roles where the options name them (DecideRoles), or where the
// search finds them sooner than any layout. Errors are those of DecideLayout and DecideRoles.
// `tell`: as DecideLayout has it.
base::Result<std::vector<RoleDecision>> DecideJob(const layout::EngineOptions& options,
                                                  const model::ModelConfig& config,
                                                  const TellSearch& tell = {});

}  // namespace forebay::choose
