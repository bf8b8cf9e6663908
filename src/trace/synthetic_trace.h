// Traces drawn from distributions:
// "synthetic:n=1000,prompt=normal(1067,280),output=lognormal(5.2,1),rate=2.5,seed=1".
#pragma once

#include <string_view>

#include "trace/trace.h"

namespace forebay::trace {

inline constexpr std::string_view kSyntheticPrefix = "synthetic:";

// REQUIRES: `spec` begins with kSyntheticPrefix. The same text gives the same rows on every machine
// with the same libm.
base::Result<LengthTrace> MakeSyntheticTrace(std::string_view spec);

}  // namespace forebay::trace
