// The names of step modes, wherever a user, a log or a report reads or writes one. A new mode is a
// value of FfnMode and its name here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "forebay/step_mode.h"

namespace forebay::schedule {

// All modes, in the order in which they are listed; sp and tp are 1.
std::vector<StepMode> AllModes();

// The name says how the FFN is reached: local, pull and so on. Degrees are the layout's.
std::string_view Name(const StepMode& mode);
// The mode of that name, with sp and tp 1. Errors: kInvalidArgument lists the names.
base::Result<StepMode> ParseMode(std::string_view name);

// What a user may ask for where weights are pooled: a mode, or nothing, which is "auto": by the
// load.
using WantedMode = std::optional<StepMode>;
std::string_view Name(const WantedMode& wanted);
base::Result<WantedMode> ParseWantedMode(std::string_view name);
// All names that ParseWantedMode takes, and what each means.
std::vector<std::string> WantedModeNames();
std::string WantedModeHelp();

// The counters in EngineStats::mode_counters of steps in this mode, and of steps in
// these degrees ("steps_sp4tp2").
std::string StepsCounter(const StepMode& mode);
std::string DegreesCounter(const Degrees& degrees);

}  // namespace forebay::schedule
