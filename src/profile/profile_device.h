// Measures a device of this machine through its memory, kernels and streams, as a profile for the
// cost model.
#pragma once

#include "profile/cases.h"

namespace forebay::profile {

// `name`: what the profile is called. Errors: those of MakeSubject and Bench::Create, and the first
// fault of an operation.
base::Result<cost::DeviceProfile> ProfileDevice(runtime::Runtime& runtime,
                                                const ProfileOptions& options, std::string name,
                                                const ProgressFn& progress);

}  // namespace forebay::profile
