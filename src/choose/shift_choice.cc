#include "choose/shift_choice.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "layout/memory_plan.h"

namespace forebay::choose {
namespace {

using model::Degrees;
using schedule::ShiftEntry;

// Rows at which modes are priced: four an octave.
std::vector<int64_t> Buckets(int64_t max_rows) {
  std::vector<int64_t> rows;
  for (int64_t octave = 1; octave <= max_rows; octave *= 2) {
    for (int64_t part = 0; part < 4; ++part) {
      const int64_t at = octave + octave * part / 4;
      if (at <= max_rows && (rows.empty() || at > rows.back())) rows.push_back(at);
    }
  }
  return rows;
}

// A bucket's mode is the best at its least rows.
std::vector<ShiftEntry> EntriesOf(const ShiftChoice& choice) {
  std::vector<ShiftEntry> entries;
  for (const ModePrices& price : choice.prices) {
    const ShiftEntry entry =
        layout::ShiftEntryOf(choice.plan.modes[price.best], std::numeric_limits<int64_t>::max());
    if (!entries.empty() && entries.back() == entry) continue;
    if (!entries.empty()) entries.back().most_rows = price.rows - 1;
    entries.push_back(entry);
  }
  return entries;
}

}  // namespace

std::vector<ModePrices> PriceModes(const std::vector<Degrees>& modes,
                                   const layout::EngineOptions& options,
                                   const model::ModelConfig& config,
                                   const layout::MachinePlan& machine,
                                   const price::StepPulls* pulls) {
  const int64_t max_rows = machine.max_num_batched_tokens;
  std::vector<std::unique_ptr<price::StepPricer>> pricers;
  for (const Degrees& mode : modes) {
    pricers.push_back(std::make_unique<price::StepPricer>(
        config, options.machine.dtype, mode,
        model::StepCapacity{max_rows, layout::LogitRows(config, max_rows)}, machine.profile,
        options.pricing()));
  }
  std::vector<ModePrices> prices;
  for (const int64_t rows : Buckets(max_rows)) {
    ModePrices& of_rows = prices.emplace_back(ModePrices{rows, {}, 0});
    for (const auto& pricer : pricers) {
      const cost::Work step = pricer->Prompts(rows, rows).all();
      const bool is_own = pricer == pricers.front();
      of_rows.seconds.push_back(is_own && pulls != nullptr
                                    ? std::max(price::SecondsBeside(step, *pulls), pulls->seconds())
                                    : step.seconds);
    }
    of_rows.best =
        static_cast<size_t>(std::ranges::min_element(of_rows.seconds) - of_rows.seconds.begin());
  }
  return prices;
}

base::Result<ShiftChoice> ChooseShift(const layout::EngineOptions& options,
                                      const layout::LayoutDraft& draft,
                                      const price::StepPulls* pulls) {
  ShiftChoice choice;
  FB_ASSIGN_OR_RETURN(choice.plan, layout::AskedShift(options, draft.layout));
  if (draft.layout.sp > 1 && choice.plan.table.entries.empty()) {
    choice.prices = PriceModes(choice.plan.modes, options, draft.config, draft.machine, pulls);
    choice.plan.table.entries = EntriesOf(choice);
  }
  return choice;
}

}  // namespace forebay::choose
