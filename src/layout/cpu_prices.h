// Whether real devices need prices, and which built-in profile has them. Pure.
#pragma once

#include <string>
#include <string_view>

#include "layout/options.h"

namespace forebay::layout {

// Whether real ranks decide by prices, and nobody has named a profile: which layout they take,
// how many layers they pool or experts they hold, or in which mode they reach what they pool.
bool WantsPrices(const EngineOptions& options);

// The built-in profile that fits a CPU of this name (runtime::CpuName) under kernels of this set,
// of which a rank has so many workers; "": none does.
std::string FittingProfile(std::string_view cpu, std::string_view isa, int workers);

}  // namespace forebay::layout
