#include "choose/expert_choice.h"

#include <algorithm>

#include "base/check.h"
#include "choose/count_search.h"

namespace forebay::choose {

const ExpertTrial& ExpertChoice::chosen() const {
  return *std::ranges::find(trials, size, &ExpertTrial::size);
}

ExpertChoice ChooseExpertSize(std::span<const int64_t> sizes, const PoolQuestion& question) {
  FB_CHECK(!sizes.empty(), "no size covers the experts");
  const auto size_at = [&](int64_t place) { return sizes[static_cast<size_t>(place)]; };
  const auto attempt = [&](int64_t place, double least) {
    return ThroughputOf(question, question.memory(size_at(place), least));
  };
  CountSearch search(static_cast<int64_t>(sizes.size()) - 1, question.rival, attempt);
  ExpertChoice choice{.size = size_at(search.Most().value_or(0))};
  for (const auto& [place, trial] : search.tried())
    choice.trials.push_back({trial, size_at(place)});
  return choice;
}

}  // namespace forebay::choose
