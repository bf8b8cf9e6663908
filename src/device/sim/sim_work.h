// What streams of simulated devices do, as the engine sees it.
#pragma once

#include <cstdint>

#include "device/sim/due_heap.h"

namespace forebay::device {

// A run when nothing else runs on its device, and the parts of it that copies slow. Sums of whole
// picoseconds are exact.
struct SimWork {
  TimePs alone = 0;
  TimePs compute = 0;  // limited by the clock frequency
  double memory = 0;   // picoseconds that need the memory's full bandwidth

  SimWork& operator+=(const SimWork& other) {
    alone += other.alone, compute += other.compute, memory += other.memory;
    return *this;
  }
  SimWork operator*(int64_t times) const {
    return {alone * times, compute * times, memory * static_cast<double>(times)};
  }
};

// A part of a body that a stream repeats. The value of a post or an await is that of the first
// body; in each next one it is higher by `growth`, the number of times that the body names the
// counter.
struct SimStep {
  enum class Kind : uint8_t { kRun, kPost, kAwait, kTransfer };
  Kind kind = Kind::kRun;
  int counter = -1;
  uint64_t value = 0, growth = 0;
  int from = 0, to = 0;  // a transfer's nodes
  int window = 0;        // and how many may be under way beside it, itself included
  uint64_t bytes = 0;
  SimWork work;

  bool meets() const { return kind == Kind::kPost || kind == Kind::kAwait; }
};

}  // namespace forebay::device
