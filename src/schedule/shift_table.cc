#include "schedule/shift_table.h"

#include "base/rng.h"

namespace forebay::schedule {

StepMode ShiftTable::Shift(StepMode mode, int64_t rows, int64_t step) const {
  if (entries.empty()) return mode;
  size_t index = 0;
  if (flip_every > 0) {
    index = static_cast<size_t>(step / flip_every) % entries.size();
  } else if (flip_every == kFlipAtRandom) {
    index = base::Mix64(static_cast<uint64_t>(step)) % entries.size();
  } else {
    while (index + 1 < entries.size() && rows > entries[index].most_rows) ++index;
  }
  mode.degrees = entries[index].degrees;
  if (pooled && mode.degrees.sp == 1) mode.ffn = FfnMode::kLocal;
  return mode;
}

}  // namespace forebay::schedule
