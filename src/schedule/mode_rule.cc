#include "schedule/mode_rule.h"

namespace forebay::schedule {

StepMode ModeRule::Of(int64_t rows, int64_t step) const {
  StepMode mode = wanted;
  const bool off = flip_every > 0 && step / flip_every % 2 == 1;
  if (mode.ffn == FfnMode::kPull && rows <= routed_rows && routed_rows > 0 && !off)
    mode.ffn = FfnMode::kRouted;
  return shift.Shift(mode, rows, step);
}

}  // namespace forebay::schedule
