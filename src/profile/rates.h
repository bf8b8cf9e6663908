// What this machine can do at this moment, for shares of a limit.
#pragma once

#include <string_view>

#include "base/status.h"
#include "runtime/runtime.h"

namespace forebay::profile {

struct Rates {
  // a second, of bf16 products from registers (fp32 FMA where the set has no others)
  double flops = 0;
  double bytes_per_s = 0;  // read once from memory
};

// With `workers` of the machine's cores and the named kernel set; takes about 0.2 s and 256 MiB.
base::Result<Rates> MeasureRates(runtime::Runtime& runtime, int workers, std::string_view isa);

}  // namespace forebay::profile
