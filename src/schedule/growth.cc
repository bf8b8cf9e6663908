#include "schedule/growth.h"

#include <algorithm>
#include <vector>

namespace forebay::schedule {
namespace {

// A choice as a line that rises: `tokens` now, one more a step, `left` steps.
struct Life {
  int64_t left, tokens;
};

template <typename Choice>
Life LifeOf(const Choice& choice) {
  const int64_t left = choice.expected_left > 0 ? choice.expected_left : choice.remaining_output;
  return {std::min(left, choice.remaining_output), choice.known_tokens};
}

// The largest need is at an end, just before the blocks are given back. Lives are ascending.
class Profile {
 public:
  explicit Profile(std::vector<Life> lives) : lives_(std::move(lives)) {
    std::ranges::sort(lives_, {}, &Life::left);
  }

  // Blocks at the worst moment if `more` is admitted too. A choice's last block is half full on
  // average.
  double PeakWith(const Life& more, const Limits& limits) const {
    double peak = 0;
    int64_t tokens = 0, alive = 0;
    const auto need = [&](int64_t at) {
      return static_cast<double>(tokens + alive * at) / limits.block_tokens +
             static_cast<double>(alive) / 2;
    };
    bool counted = false;
    // From the last to end to the first: at an end those alone are alive that end there or later.
    for (size_t i = lives_.size(); i-- > 0;) {
      if (!counted && more.left >= lives_[i].left) {
        counted = true;
        tokens += more.tokens;
        ++alive;
        peak = std::max(peak, need(more.left));
      }
      tokens += lives_[i].tokens;
      ++alive;
      peak = std::max(peak, need(lives_[i].left));
    }
    if (!counted) {
      tokens += more.tokens;
      ++alive;
      peak = std::max(peak, need(more.left));
    }
    return peak;
  }

  void Add(const Life& life) {
    lives_.insert(std::ranges::upper_bound(lives_, life.left, {}, &Life::left), life);
  }

 private:
  std::vector<Life> lives_;
};

}  // namespace

int64_t ChoicesThatFit(const StepView& view, double capacity) {
  std::vector<Life> lives;
  auto blocks = static_cast<double>(view.available_blocks + view.later_blocks);
  for (const std::vector<RunningView>* choices : {&view.running, &view.elsewhere}) {
    for (const RunningView& choice : *choices) {
      lives.push_back(LifeOf(choice));
      blocks += static_cast<double>(choice.reserved_blocks);
    }
  }
  Profile profile(std::move(lives));
  int64_t fitting = 0;
  for (const WaitingView& choice : view.waiting) {
    // What it shares is counted once with those that hold it, once with it.
    blocks += static_cast<double>(choice.held_tokens / view.limits.block_tokens);
    const Life life = LifeOf(choice);
    if (profile.PeakWith(life, view.limits) > capacity * blocks) break;
    profile.Add(life);
    ++fitting;
  }
  return fitting;
}

}  // namespace forebay::schedule
