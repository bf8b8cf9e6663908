// The scenarios, one function a claim or a kind of claim; registered in scenario.cc.
#pragma once

#include "repro/scenario.h"

namespace forebay::repro {

using Findings = base::Result<std::vector<Finding>>;

Findings ModelFigures(const Claim& claim, Lab& lab);
Findings PullContention(const Claim& claim, Lab& lab);
Findings MemoryAndChunks(const Claim& claim, Lab& lab);
// SiDP: memory,
Findings KvCapacity(const Claim& claim, Lab& lab);
Findings LayoutsFit(const Claim& claim, Lab& lab);
Findings KvByLayout(const Claim& claim, Lab& lab);
// decoding in a steady state,
Findings BatchScaling(const Claim& claim, Lab& lab);
Findings BatchScalingTp(const Claim& claim, Lab& lab);
Findings LessMemory(const Claim& claim, Lab& lab);
Findings Throughput(const Claim& claim, Lab& lab);
Findings PrefetchOfALayer(const Claim& claim, Lab& lab);
Findings StepAgainstFetch(const Claim& claim, Lab& lab);
Findings FetchOfAllLayers(const Claim& claim, Lab& lab);
Findings PeakShifting(const Claim& claim, Lab& lab);
Findings ModesByBatch(const Claim& claim, Lab& lab);
// whole jobs and their tails,
Findings ModeSwitch(const Claim& claim, Lab& lab);
Findings TailSteps(const Claim& claim, Lab& lab);
Findings StepsThatPull(const Claim& claim, Lab& lab);
// and what the paper lacks: some layers pooled.
Findings PoolChoices(const Claim& claim, Lab& lab);
Findings PoolGains(const Claim& claim, Lab& lab);

}  // namespace forebay::repro
