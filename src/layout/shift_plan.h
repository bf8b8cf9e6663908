// In which mode a replica takes a step of so many rows, where the layout cuts rows (Shift
// Parallelism, arXiv 2509.16495): forced, by a threshold, or the cheapest by the prices of a device
// profile.
#pragma once

#include <vector>

#include "layout/machine.h"
#include "layout/options.h"
#include "layout/step_price.h"
#include "model/activations.h"
#include "schedule/shift_table.h"

namespace forebay::layout {

inline constexpr base::ErrorCode kShiftInvalid{"shift_invalid"};

// What a step of so many rows of one prompt costs in each mode: linear layers, norms and exchanges,
// and attention, which is the same in all.
struct ModePrices {
  int64_t rows;
  std::vector<double> seconds;  // by ShiftPlan::modes
  size_t best;
};

struct ShiftPlan {
  schedule::ShiftTable table;         // empty: the layout has one mode
  std::vector<model::Degrees> modes;  // the layout's first, then by growing tp
  std::vector<ModePrices> prices;     // ascending rows; where modes were chosen by price

  // The modes that steps may take, with the most rows of each.
  std::vector<model::ModeRows> ModesInUse(int64_t max_rows) const;
};

// The modes of a layout: all s' x t' = s t with t dividing t', or its two ends alone.
std::vector<model::Degrees> ModesOf(const model::Degrees& layout, bool ends);
std::string FormatMode(const model::Degrees& mode);  // "4x2"

// `pulls`: of a step in the layout's own mode; null: nothing is pooled, or it is not known yet.
// kShiftInvalid: modes or thresholds of a layout with sp=1, a mode that the layout does not have.
base::Result<ShiftPlan> PlanShift(const EngineOptions& options, const model::ModelConfig& config,
                                  const Layout& layout, const MachinePlan& machine,
                                  const StepPulls* pulls = nullptr);
// Prices of all modes, at four numbers of rows an octave. REQUIRES: the model can be cut so.
std::vector<ModePrices> PriceModes(const std::vector<model::Degrees>& modes,
                                   const EngineOptions& options, const model::ModelConfig& config,
                                   const MachinePlan& machine, const StepPulls* pulls = nullptr);

}  // namespace forebay::layout
