// The table's groups, each where it is declared.
#pragma once

#include "settings/table.h"

namespace forebay::settings {

// Who takes a setting, as rows write it: whoever opens a model, and these and a plan of it.
inline constexpr unsigned kModel = kRun | kPython, kAll = kModel | kPlan;

// groups_model.cc
Group ModelGroup();
Group LengthsGroup();
Group MemoryGroup();
Group TextGroup();
// groups_layout.cc
Group DevicesGroup();
Group PaperGroup();
Group TrialGroup();
// groups_job.cc
Group PlanGroup();
Group FilesGroup();
Group LogsGroup();
Group ArrivalsGroup();
Group SimulationGroup();

}  // namespace forebay::settings
