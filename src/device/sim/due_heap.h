// When each of a few numbered things is due next: a binary heap with at most one entry a number,
// which can be moved.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace forebay::device {

// Virtual time inside the simulator: whole picoseconds, so that sums of durations are exact in any
// order.
using TimePs = int64_t;
inline constexpr TimePs kNever = INT64_MAX;
inline constexpr double kPsPerSecond = 1e12;
// Rounded up, but for the noise of the arithmetic that gave `ps`. REQUIRES: 0 <= ps < 9e18.
inline TimePs WholePs(double ps) { return static_cast<TimePs>(ps + 0.999); }

// Equal times are ordered by `tie`. Nothing allocates but Resize.
class DueHeap {
 public:
  // Numbers are 0 .. count - 1.
  void Resize(int count) {
    entries_.reserve(count);
    place_.resize(count, -1);
  }
  TimePs top_time() const { return entries_.empty() ? kNever : entries_[0].time; }
  // kNever: it is not there.
  TimePs time_of(int number) const {
    return place_[number] < 0 ? kNever : entries_[place_[number]].time;
  }
  // All but those at kNever are due so much later.
  void Delay(TimePs by) {
    for (Entry& entry : entries_) entry.time += entry.time == kNever ? 0 : by;
  }

  // Adds `number`, or moves it.
  void Set(int number, TimePs time, uint32_t tie) {
    int at = place_[number];
    if (at < 0) {
      at = static_cast<int>(entries_.size());
      entries_.push_back({});
    }
    entries_[at] = {time, tie, number};
    Down(Up(at));
  }

  // Removes and returns the first. REQUIRES: not empty.
  int Pop() {
    FB_CHECK(!entries_.empty(), "nothing is due");
    const int number = entries_[0].number;
    place_[number] = -1;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (!entries_.empty()) {
      entries_[0] = last;
      Down(0);
    }
    return number;
  }

 private:
  struct Entry {
    TimePs time;
    uint32_t tie;
    int number;
  };

  static bool Before(const Entry& a, const Entry& b) {
    return a.time != b.time ? a.time < b.time : a.tie < b.tie;
  }

  void Put(int at, const Entry& entry) {
    entries_[at] = entry;
    place_[entry.number] = at;
  }

  int Up(int at) {
    const Entry entry = entries_[at];
    while (at > 0 && Before(entry, entries_[(at - 1) / 2])) {
      Put(at, entries_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    Put(at, entry);
    return at;
  }

  void Down(int at) {
    const Entry entry = entries_[at];
    const int count = static_cast<int>(entries_.size());
    for (;;) {
      int child = 2 * at + 1;
      if (child >= count) break;
      if (child + 1 < count && Before(entries_[child + 1], entries_[child])) ++child;
      if (!Before(entries_[child], entry)) break;
      Put(at, entries_[child]);
      at = child;
    }
    Put(at, entry);
  }

  std::vector<Entry> entries_;
  std::vector<int> place_;  // by number; -1: not in the heap
};

}  // namespace forebay::device
