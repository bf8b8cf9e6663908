// Whether real devices need prices, and which built-in profile has them. Pure.
#pragma once

#include <string>
#include <string_view>

#include "layout/options.h"

namespace forebay::price {

// Whether ranks decide by prices and by the job: which layout they take, how many layers they pool
// or experts they hold, or in which mode they reach what they pool.
bool DecidesByPrices(const layout::EngineOptions& options);

// Whether prices decide how much KV of running choices lives below the device; of an input that is
// known, by what the job comes to.
bool StreamsByPrices(const layout::EngineOptions& options);

// Whether real ranks decide something by prices, and nobody has named a profile: that, the modes of
// steps whose rows are cut, what KV lies below the device, or how long steps may be. A layout is
// chosen of a job that is known.
bool WantsPrices(const layout::EngineOptions& options);

// The built-in profile that fits a CPU of this name (runtime::CpuName) under kernels of this set,
// of which a rank has so many workers; "": none does.
std::string FittingProfile(std::string_view cpu, std::string_view isa, int workers);

}  // namespace forebay::price
