// Measures the CPU at hand through its device, kernels and streams, as a profile for the cost
// model.
#pragma once

#include "profile/cases.h"

namespace forebay::profile {

// `name`: what the profile is called. Errors: Bench::Create's.
base::Result<cost::DeviceProfile> ProfileDevice(runtime::Runtime& runtime,
                                                const BenchOptions& options, std::string name,
                                                const ProgressFn& progress);

}  // namespace forebay::profile
