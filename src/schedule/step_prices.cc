#include "schedule/step_prices.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "schedule/limits.h"

namespace forebay::schedule {

StepPrices::StepPrices(std::vector<RowPrice> prices, const RowSlopes& slopes)
    : prices_(std::move(prices)), slopes_(slopes) {
  FB_CHECK(!prices_.empty(), "no step has a price");
  const auto rate = [](const RowPrice& price) {
    return static_cast<double>(price.rows) / price.seconds;
  };
  const double best = rate(*std::ranges::max_element(prices_, {}, rate));
  rate_rows_ = std::ranges::find_if(prices_, [&](const RowPrice& price) {
                 return rate(price) >= 0.99 * best;
               })->rows;
}

double StepPrices::Seconds(const StepRows& rows) const {
  const auto above = std::ranges::lower_bound(prices_, rows.rows, {}, &RowPrice::rows);
  double seconds = above == prices_.end() ? prices_.back().seconds : above->seconds;
  if (above != prices_.begin() && above != prices_.end()) {
    const RowPrice& below = *std::prev(above);
    const double part =
        static_cast<double>(rows.rows - below.rows) / static_cast<double>(above->rows - below.rows);
    seconds = below.seconds + part * (above->seconds - below.seconds);
  }
  return seconds +
         slopes_.sampled_row * static_cast<double>(std::max<int64_t>(0, rows.sampled - 1)) +
         slopes_.decode_token * static_cast<double>(rows.decode_context) +
         slopes_.prompt_token * static_cast<double>(rows.prompt_context);
}

double TargetItlSeconds(double wanted, const StepPrices* prices, double price_factor) {
  if (wanted >= 0 || prices == nullptr) return wanted;
  return kTargetSteps * price_factor * prices->Seconds(StepRows().With(0, 1, true));
}

void PriceFactor::Observe(double priced, double measured) {
  constexpr double kSteps = 16, kMost = 64;
  if (priced <= 0) return;
  const double ratio = std::clamp(measured / priced, 1 / kMost, kMost);
  // The first steps count in full, so that a wrong profile is known soon.
  steps_ = std::min<int64_t>(steps_ + 1, static_cast<int64_t>(kSteps));
  value_ += (ratio - value_) / static_cast<double>(steps_);
}

}  // namespace forebay::schedule
