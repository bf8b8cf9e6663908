// The scenarios, one function a claim or a kind of claim; registered in scenario.cc.
#pragma once

#include "repro/scenario.h"

namespace forebay::repro {

base::Result<std::vector<Finding>> ModelFigures(const Claim& claim);
base::Result<std::vector<Finding>> PullContention(const Claim& claim);
base::Result<std::vector<Finding>> BatchScaling(const Claim& claim);
base::Result<std::vector<Finding>> MemoryAndChunks(const Claim& claim);

}  // namespace forebay::repro
