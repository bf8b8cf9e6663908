// In which mode (model/modes.h) a replica takes a step, by the step's rows: sequence parallel where
// there are many, tensor parallel where there are few (Shift Parallelism, arXiv 2509.16495,
// Algorithm 3). Pure, without memory: KV lies the same in all modes, so a switch costs nothing and
// needs no hysteresis.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "forebay/step_mode.h"

namespace forebay::schedule {

struct ShiftEntry {
  int64_t most_rows;  // a step has that takes this mode; in the last entry, any step
  Degrees degrees;
  friend bool operator==(const ShiftEntry&, const ShiftEntry&) = default;
};

// A value of ShiftTable::flip_every: each step in a mode that is drawn by its number.
inline constexpr int kFlipAtRandom = -1;

// Empty: the layout has one mode.
struct ShiftTable {
  std::vector<ShiftEntry> entries;  // ascending rows
  int flip_every = 0;               // trials: steps in each mode in turn, whatever their rows
  // Weights are pooled along sp: a step with sp=1 pulls nothing, for each rank owns its part.
  bool pooled = false;

  bool empty() const { return entries.empty(); }
  // `mode` with the degrees of step number `step`, of `rows` rows.
  StepMode Shift(StepMode mode, int64_t rows, int64_t step) const;
};

}  // namespace forebay::schedule
