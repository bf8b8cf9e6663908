// Links slower than the machine's, for trials: ranks of one memory take as long over what they read
// of each other, or of what lies below them, as over a link of a given rate.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "runtime/runtime.h"

namespace forebay::fabric {

struct LinkPace {
  runtime::Runtime* runtime = nullptr;  // that of the ranks, which it outlives; null: none
  double bytes_per_s = 0;               // 0: bytes take no time
};

// The time of `bytes` over such a link.
runtime::TimeNs TimeOf(uint64_t bytes, const LinkPace& pace);
// Holds `stream` for so long, which takes no core, in an operation of that name, a literal.
void Hold(device::Stream& stream, runtime::Runtime& runtime, runtime::TimeNs time,
          const char* label);
// Holds `stream` for as long as `bytes` take over such a link, and a core with it: to the
// microsecond. REQUIRES: a real pace.runtime.
void Pace(device::Stream& stream, uint64_t bytes, const LinkPace& pace);

}  // namespace forebay::fabric
