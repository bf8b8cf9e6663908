#include "engine/load_watch.h"

#include <algorithm>
#include <numeric>

namespace forebay::engine {
namespace {

constexpr double kBackToPull = 1.25;  // times the threshold: so that the mode does not flap
// The weight of the latest look is one in so many: a spread that passes within a few steps changes
// no mode.
constexpr int kLooks = 32;

}  // namespace

void LoadWatch::See(std::span<const int32_t> rows) {
  if (rows.empty()) return;
  const auto all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  working_ = std::ranges::count_if(rows, [](int32_t each) { return each > 0; });
  mean_rows_ = all / static_cast<double>(rows.size());
  if (working_ > 1 && mean_rows_ <= kBackToPull * options_.threshold) {
    const double most = std::ranges::max(rows);
    looks_ = std::min(looks_ + 1, kLooks);
    spread_ += (most * static_cast<double>(working_) / all - 1 - spread_) / looks_;
  }
  calm_steps_ = mean_rows_ < threshold() ? std::max(calm_steps_ + 1, working_) : 0;
}

bool LoadWatch::high() const { return mean_rows_ > kBackToPull * threshold(); }

}  // namespace forebay::engine
