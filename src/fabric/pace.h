// Links slower than the machine's, for trials: ranks of one memory take as long over what they read
// of each other as over a link of a given rate.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "runtime/runtime.h"

namespace forebay::fabric {

struct LinkPace {
  runtime::Runtime* runtime = nullptr;  // a real one, which outlives the ranks; null: none
  double bytes_per_s = 0;
};

// Holds `stream` for as long as `bytes` take over such a link. REQUIRES: pace.runtime.
void Pace(device::Stream& stream, uint64_t bytes, const LinkPace& pace);

}  // namespace forebay::fabric
