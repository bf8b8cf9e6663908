#include "schedule/growth.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace forebay::schedule {
namespace {

// A choice as a line that rises from its beginning to its end, by a token a step; steps from now.
struct Life {
  int64_t begin, end, tokens;  // tokens: when it begins
};

template <typename Choice>
Life LifeOf(const Choice& choice) {
  const int64_t left = choice.expected_left > 0 ? choice.expected_left : choice.remaining_output;
  return {0, std::min(left, choice.remaining_output), choice.known_tokens};
}

// Lives ascend by their ends. All begin now but for one at most (AddLater).
class Profile {
 public:
  // Of the choices that run. Adds the blocks that they hold.
  Profile(const StepView& view, double* blocks) : limits_(view.limits) {
    for (const std::vector<RunningView>* choices : {&view.running, &view.elsewhere}) {
      for (const RunningView& choice : *choices) {
        lives_.push_back(LifeOf(choice));
        *blocks += static_cast<double>(choice.reserved_blocks);
      }
    }
    std::ranges::sort(lives_, {}, &Life::end);
  }

  // Adds a life if all hold at most so many blocks at the worst moment.
  bool AddIfFits(const Life& life, double most_blocks) {
    const auto place =
        lives_.insert(std::ranges::upper_bound(lives_, life.end, {}, &Life::end), life);
    if (Peak() <= most_blocks) return true;
    lives_.erase(place);
    return false;
  }

  // Adds one where it begins at the end of another and fits: at the first such end if each later
  // one has more room. Nothing where none has.
  void AddLater(const Life& life, double most_blocks) {
    std::vector<int64_t> ends;
    for (const Life& each : lives_) {
      if (each.end > 0) ends.push_back(each.end);
    }
    size_t first = 0, end = ends.size();
    std::optional<Life> best;
    while (first < end) {
      const size_t middle = first + (end - first) / 2;
      const Life later{ends[middle], ends[middle] + life.end, life.tokens};
      if (!AddIfFits(later, most_blocks)) {
        first = middle + 1;
        continue;
      }
      std::erase_if(lives_, [](const Life& each) { return each.begin > 0; });
      best = later;
      end = middle;
    }
    if (best) AddIfFits(*best, most_blocks);
  }

 private:
  // Blocks at the worst moment, which is at an end, just before blocks are given back. A choice's
  // last block is half full on average.
  double Peak() const {
    double peak = 0;
    int64_t tokens = 0, alive = 0;
    const Life* later = nullptr;
    // From the last to end to the first: at an end those alone are alive that end there or later.
    for (size_t i = lives_.size(); i-- > 0;) {
      const Life& life = lives_[i];
      tokens += life.tokens - life.begin;
      ++alive;
      if (life.begin > 0) later = &life;
      const bool waits = later != nullptr && later->begin >= life.end;
      const int64_t there = alive - (waits ? 1 : 0),
                    held = tokens - (waits ? later->tokens - later->begin : 0) + there * life.end;
      peak = std::max(
          peak, static_cast<double>(held) / limits_.block_tokens + static_cast<double>(there) / 2);
    }
    return peak;
  }

  const Limits& limits_;
  std::vector<Life> lives_;
};

}  // namespace

int64_t ChoicesThatFit(const StepView& view, double capacity) {
  auto blocks = static_cast<double>(view.available_blocks + view.later_blocks);
  Profile profile(view, &blocks);
  int64_t fitting = 0;
  for (const WaitingView& choice : view.waiting) {
    // What it shares is counted once with those that hold it, once with it.
    blocks += static_cast<double>(choice.held_tokens / view.limits.block_tokens);
    if (!profile.AddIfFits(LifeOf(choice), capacity * blocks)) break;
    ++fitting;
  }
  return fitting;
}

void ChoicesThatFitFirst(const StepView& view, double capacity, std::vector<bool>* fit) {
  auto blocks = static_cast<double>(view.available_blocks + view.later_blocks);
  Profile profile(view, &blocks);
  bool one_waits = false;
  fit->clear();
  for (const WaitingView& choice : view.waiting) {
    const auto shared = static_cast<double>(choice.held_tokens / view.limits.block_tokens);
    const Life life = LifeOf(choice);
    const bool fits = profile.AddIfFits(life, capacity * (blocks + shared));
    fit->push_back(fits);
    if (fits) {
      blocks += shared;
    } else if (!std::exchange(one_waits, true)) {
      profile.AddLater(life, capacity * blocks);
    }
  }
}

}  // namespace forebay::schedule
