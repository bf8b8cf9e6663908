// By which profile the CPU at hand is priced where nobody names one and ranks decide by prices: the
// built-in one that fits it, else one that is measured once and kept in the user's cache folder.
#pragma once

#include <functional>
#include <string>

#include "cost/profile.h"
#include "layout/options.h"
#include "runtime/runtime.h"

namespace forebay::profile {

// What a profile is of.
struct CpuAtHand {
  std::string name;  // runtime::CpuName
  std::string isa;   // the kernels'
  int workers = 1;   // a rank's
  int cores = 1;     // the machine's, as far as it may be used
};

using MeasureFn = std::function<base::Result<cost::DeviceProfile>(const std::string& name)>;

// The file in `folder` that holds the profile of this CPU, measured by this version of Forebay:
// what lies there where it is whole and of the same, else what `measure` measures under the name
// that it gets. Of several processes one measures, and the others wait for it. Errors: those of
// `measure`; kIoError, before anything is measured, where the folder cannot be written;
// kProfileInvalid, and nothing is kept, where what was measured is none.
base::Result<std::string> KeptProfile(const std::string& folder, const CpuAtHand& cpu,
                                      const MeasureFn& measure);

// $XDG_CACHE_HOME/forebay, else ~/.cache/forebay, else, where neither is set, a folder of the
// user's among temporary files.
std::string CacheFolder();

// Sets options->machine.device_profile where price::WantsPrices says so, and tells on stderr of
// what is measured. A CPU that cannot be measured costs a warning: modes keep to constants then.
void PriceCpu(runtime::Runtime& runtime, layout::EngineOptions* options);

}  // namespace forebay::profile
