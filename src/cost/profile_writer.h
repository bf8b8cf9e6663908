// Writes a profile as docs/profiles.md describes it, so that LoadProfile reads the same one (times
// to 4 digits).
#pragma once

#include <string>

#include "cost/profile.h"

namespace forebay::cost {

// Numbers without provenance are left out. REQUIRES: texts are not empty.
std::string WriteProfile(const DeviceProfile& profile);

}  // namespace forebay::cost
