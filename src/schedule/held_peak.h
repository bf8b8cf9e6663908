// The most that choices of a kind held in the last minute. Pure: time is what callers say.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace forebay::schedule {

struct Held {
  int64_t choices = 0, blocks = 0;

  // One more choice, which holds so many.
  void Add(int64_t more_blocks) {
    ++choices;
    blocks += more_blocks;
  }
  Held MostOf(const Held& other) const {
    return {std::max(choices, other.choices), std::max(blocks, other.blocks)};
  }
};

class HeldPeak {
 public:
  // What is held before a step. Times ascend.
  void Add(int64_t now_us, const Held& held) {
    const int64_t second = now_us / 1'000'000;
    for (latest_ = std::max(latest_, second - kSeconds); latest_ < second;) At(++latest_) = {};
    At(second) = At(second).MostOf(held);
  }
  // The most of the minute that the last Add ended.
  Held most() const {
    Held most;
    for (const Held& held : seconds_) most = most.MostOf(held);
    return most;
  }

 private:
  static constexpr int64_t kSeconds = 60;

  Held& At(int64_t second) { return seconds_[static_cast<size_t>(second % kSeconds)]; }

  std::array<Held, kSeconds> seconds_ = {};
  int64_t latest_ = 0;  // the second that was added to last
};

}  // namespace forebay::schedule
