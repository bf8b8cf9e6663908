#include "choose/count_search.h"

#include <algorithm>
#include <utility>

namespace forebay::choose {
namespace {

constexpr double kNearlyBest = 0.998;
constexpr int64_t kFirstTrials = 16;
// As kQuartersShow: the best of halves; that of quarters and of the best with other settings.
constexpr double kHalvesShow = 0.88, kAboutShows = 0.993;

}  // namespace

CountSearch::CountSearch(int64_t last, const CountRival& rival, Attempt attempt)
    : last_(last),
      step_(std::max<int64_t>(1, last / kFirstTrials)),
      rival_(rival),
      attempt_(std::move(attempt)) {
  ends_early_ = !TryQuarters();
  if (!ends_early_) {
    // With a rival no further from the best quarter than its neighbours.
    const int64_t best = Best()->first / step_ * step_,
                  near = rival_.tokens_per_s > 0 ? quarter() : last;
    TryBetween(best - near, best + near, step_);
    const int64_t about = Best()->first;
    TryBetween(about - step_, about + step_, 1);
  }
  as_good_ = kNearlyBest * BestRate();
}

int64_t CountSearch::quarter() const { return kFirstTrials / 4 * step_; }

bool CountSearch::TryQuarters() {
  if (rival_.about >= 0) TryBetween(rival_.about, rival_.about, 1);
  TryBetween(0, last_, 2 * quarter());
  TryBetween(last_, last_, 1);
  if (BestRate() < kHalvesShow * rival_.tokens_per_s) return false;
  TryBetween(0, last_, quarter());
  const double shown = rival_.about >= 0 ? kAboutShows : kQuartersShow;
  if (rival_.quarters_do || BestRate() < shown * rival_.tokens_per_s) return false;
  // None and all are what the choice is told with.
  for (auto& [count, trial] : tried_) {
    if ((count == 0 || count == last_) && trial.job && trial.job->stopped)
      trial = attempt_(count, 0);
  }
  return true;
}

void CountSearch::TryBetween(int64_t first, int64_t end, int64_t step) {
  for (int64_t count = std::max<int64_t>(first, 0); count <= std::min(end, last_); count += step) {
    if (!tried_.contains(count)) tried_.emplace(count, attempt_(count, Least()));
  }
}

std::map<int64_t, Throughput>::const_iterator CountSearch::Best() const {
  return std::ranges::max_element(tried_, {},
                                  [](const auto& trial) { return trial.second.tokens_per_s(); });
}

double CountSearch::Least() const {
  if (rival_.tokens_per_s <= 0) return 0;
  return std::max(kHalvesShow * rival_.tokens_per_s,
                  tried_.empty() ? 0 : kNearlyBest * kNearlyBest * BestRate());
}

std::optional<int64_t> CountSearch::Fewest() {
  if (as_good_ <= 0) return std::nullopt;
  const auto fewest = [this] {
    return std::ranges::find_if(tried_,
                                [this](const auto& trial) { return IsAsGood(trial.second); })
        ->first;
  };
  const int64_t good = fewest();
  if (ends_early_) return good;
  TryBetween(good - step_, good, 1);
  return fewest();
}

std::optional<int64_t> CountSearch::Most() {
  if (as_good_ <= 0) return std::nullopt;
  const auto most = [this] {
    return std::find_if(tried_.rbegin(), tried_.rend(),
                        [this](const auto& trial) { return IsAsGood(trial.second); })
        ->first;
  };
  const int64_t good = most();
  if (ends_early_) return good;
  TryBetween(good, good + step_, 1);
  return most();
}

}  // namespace forebay::choose
