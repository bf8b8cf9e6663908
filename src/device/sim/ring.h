// A first-in, first-out list whose entries have lasting numbers; memory grows to the longest
// backlog and is reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace forebay::device {

// Entry n is the n-th that was ever pushed; [begin, end) are still there. A push may move all
// entries.
template <typename T>
class Ring {
 public:
  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }
  T& operator[](uint64_t number) { return slots_[number & mask_]; }

  void Push(const T& entry) {
    if (end_ - begin_ == slots_.size()) Grow();
    slots_[end_++ & mask_] = entry;
  }
  // REQUIRES: begin < end.
  void Pop() { ++begin_; }

 private:
  void Grow() {
    std::vector<T> grown(slots_.empty() ? 16 : 2 * slots_.size());
    for (uint64_t n = begin_; n < end_; ++n) grown[n & (grown.size() - 1)] = slots_[n & mask_];
    slots_ = std::move(grown);
    mask_ = slots_.size() - 1;
  }

  std::vector<T> slots_;  // a power of two
  uint64_t mask_ = 0;
  uint64_t begin_ = 0, end_ = 0;
};

}  // namespace forebay::device
