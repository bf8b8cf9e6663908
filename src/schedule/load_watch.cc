#include "schedule/load_watch.h"

#include <algorithm>
#include <numeric>

namespace forebay::schedule {
namespace {

// The latest look weighs 1 / kLooks, so that a spread that passes within a few steps changes no
// mode.
constexpr int kLooks = 32;

}  // namespace

double LoadRule::Threshold(double spread) const {
  if (spread <= 0) return threshold;
  Tolerated more{.rows = threshold};
  for (const Tolerated& less : tolerated) {
    if (less.rows == 0) return more.rows;
    if (spread < less.spread) {
      const double part = (spread - more.spread) / (less.spread - more.spread);
      return std::min(threshold, more.rows + part * (less.rows - more.rows));
    }
    more = less;
  }
  // Below, shipping saves the pull whatever the rows are, and each row costs as much in waiting.
  return std::min(threshold, more.rows * more.spread / spread);
}

void LoadWatch::See(std::span<const int32_t> rows) {
  if (rows.empty()) return;
  const auto all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  working_ = std::ranges::count_if(rows, [](int32_t each) { return each > 0; });
  mean_rows_ = all / static_cast<double>(rows.size());
  if (working_ > 1 && mean_rows_ <= kBackToPull * rule_.threshold) {
    const double most = std::ranges::max(rows);
    looks_ = std::min(looks_ + 1, kLooks);
    spread_ += (most * static_cast<double>(working_) / all - 1 - spread_) / looks_;
  }
  calm_steps_ = mean_rows_ < threshold() ? std::max(calm_steps_ + 1, working_) : 0;
}

}  // namespace forebay::schedule
