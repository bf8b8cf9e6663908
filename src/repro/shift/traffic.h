// The rows of people beside a batch (SHL): what Shift Parallelism's layouts give both under one
// policy. Ours alone: the paper's traffic has one kind of request.
#pragma once

#include <vector>

#include "repro/claim.h"

namespace forebay::repro {

std::vector<Claim> TrafficClaims();

}  // namespace forebay::repro
