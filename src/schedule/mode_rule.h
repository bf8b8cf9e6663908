// In which mode a replica takes a step, unless its group agrees on another for all its replicas.
// Pure.
#pragma once

#include <cstdint>

#include "forebay/step_mode.h"
#include "schedule/shift_table.h"

namespace forebay::schedule {

struct ModeRule {
  StepMode wanted;  // the layout's own: its degrees, and whether weights are pulled
  // The most rows of a step that pulls only the experts that its rows go to; 0: no step does.
  int64_t routed_rows = 0;
  // A trial of the two ways to pull: the replica takes this many steps with routed_rows, then as
  // many without; 0: no trial.
  int flip_every = 0;
  ShiftTable shift;  // the degrees by the step's rows

  // The mode of step number `step`, which has `rows` rows.
  StepMode Of(int64_t rows, int64_t step) const;
};

}  // namespace forebay::schedule
