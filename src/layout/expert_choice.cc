#include "layout/expert_choice.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace forebay::layout {
namespace {

constexpr double kAsGood = 0.998;
constexpr int64_t kFirstTrials = 16;

}  // namespace

const ExpertTrial& ExpertChoice::chosen() const {
  return *std::ranges::find(trials, size, &ExpertTrial::size);
}

ExpertChoice ChooseExpertSize(std::span<const int64_t> sizes, const PoolQuestion& question) {
  FB_CHECK(!sizes.empty(), "no size covers the experts");
  const auto last = static_cast<int64_t>(sizes.size()) - 1;
  std::map<int64_t, ExpertTrial> tried;  // by place among the sizes
  const auto try_between = [&](int64_t first, int64_t end, int64_t step) {
    for (int64_t i = std::max<int64_t>(first, 0); i <= std::min(end, last); i += step) {
      if (tried.contains(i)) continue;
      ExpertTrial& trial = tried[i];
      trial.size = sizes[static_cast<size_t>(i)];
      static_cast<Throughput&>(trial) = ThroughputOf(question, question.memory(trial.size));
    }
  };
  const auto rate = [](const auto& trial) { return trial.second.tokens_per_s(); };
  const auto best = [&] { return std::ranges::max_element(tried, {}, rate); };
  const auto largest = [&](double tokens_per_s) {
    auto found = std::ranges::find_if(tried.rbegin(), tried.rend(), [&](const auto& trial) {
      return rate(trial) >= tokens_per_s;
    });
    return found->first;
  };
  const int64_t step = std::max<int64_t>(1, last / kFirstTrials);
  try_between(0, last, step);
  try_between(last, last, 1);
  const int64_t about = best()->first;
  try_between(about - step, about + step, 1);
  const double as_good = kAsGood * rate(*best());
  if (as_good > 0) {
    const int64_t good = largest(as_good);
    try_between(good, good + step, 1);
  }
  ExpertChoice choice{.size = sizes[as_good > 0 ? static_cast<size_t>(largest(as_good)) : 0]};
  for (const auto& [i, trial] : tried) choice.trials.push_back(trial);
  return choice;
}

}  // namespace forebay::layout
