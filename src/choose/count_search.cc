#include "choose/count_search.h"

#include <algorithm>
#include <utility>

namespace forebay::choose {
namespace {

constexpr double kNearlyBest = 0.998;
constexpr int64_t kFirstTrials = 16;

}  // namespace

CountSearch::CountSearch(int64_t last, std::function<Throughput(int64_t)> attempt)
    : last_(last), step_(std::max<int64_t>(1, last / kFirstTrials)), attempt_(std::move(attempt)) {
  const auto best = [this] {
    return std::ranges::max_element(tried_, {},
                                    [](const auto& trial) { return trial.second.tokens_per_s(); });
  };
  TryBetween(0, last, step_);
  TryBetween(last, last, 1);
  const int64_t about = best()->first;
  TryBetween(about - step_, about + step_, 1);
  as_good_ = kNearlyBest * best()->second.tokens_per_s();
}

void CountSearch::TryBetween(int64_t first, int64_t end, int64_t step) {
  for (int64_t count = std::max<int64_t>(first, 0); count <= std::min(end, last_); count += step) {
    if (!tried_.contains(count)) tried_.emplace(count, attempt_(count));
  }
}

std::optional<int64_t> CountSearch::Fewest() {
  if (as_good_ <= 0) return std::nullopt;
  const auto fewest = [this] {
    return std::ranges::find_if(tried_,
                                [this](const auto& trial) { return IsAsGood(trial.second); })
        ->first;
  };
  const int64_t good = fewest();
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
  TryBetween(good, good + step_, 1);
  return most();
}

}  // namespace forebay::choose
