// Which positions a row of attention sees, its own included: all before it, a window of the last
// ones, or those of its own chunk.
#pragma once

#include <cstdint>

namespace forebay::base {

struct Reach {
  int32_t window = 0;  // number of last positions; 0: no window
  int32_t chunk = 0;   // those with an equal position / chunk; 0: no chunks. Not beside a window.

  constexpr Reach(int32_t window = 0, int32_t chunk = 0) : window(window), chunk(chunk) {}

  // The first position that is seen from `position`. Files with their own instruction sets call it.
  __attribute__((always_inline)) int32_t First(int32_t position) const {
    if (window > 0) return position < window ? 0 : position - window + 1;
    return chunk > 0 ? position - position % chunk : 0;
  }
  constexpr bool all() const { return window == 0 && chunk == 0; }

  friend constexpr bool operator==(const Reach&, const Reach&) = default;
};

}  // namespace forebay::base
