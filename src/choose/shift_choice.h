// In which mode a replica takes a step of so many rows where the options leave it open: the
// cheapest by the prices of a device profile. Pure.
#pragma once

#include <vector>

#include "layout/layout_draft.h"
#include "price/step_price.h"

namespace forebay::choose {

// What a step of so many rows of one prompt costs in each mode: linear layers, norms and exchanges,
// and attention, which is the same in all.
struct ModePrices {
  int64_t rows;
  std::vector<double> seconds;  // by ShiftPlan::modes
  size_t best;
};

struct ShiftChoice {
  layout::ShiftPlan plan;
  std::vector<ModePrices> prices;  // ascending rows; empty: modes were not chosen by price
};

// The modes of the draft's layout. `pulls`: of a step in the layout's own mode; null: nothing is
// pooled, or it is not known yet. Errors: layout::kShiftInvalid.
base::Result<ShiftChoice> ChooseShift(const layout::EngineOptions& options,
                                      const layout::LayoutDraft& draft,
                                      const price::StepPulls* pulls = nullptr);
// Prices of all modes, at four numbers of rows an octave. REQUIRES: the model can be cut so.
std::vector<ModePrices> PriceModes(const std::vector<model::Degrees>& modes,
                                   const layout::EngineOptions& options,
                                   const model::ModelConfig& config,
                                   const layout::MachinePlan& machine,
                                   const price::StepPulls* pulls = nullptr);

}  // namespace forebay::choose
