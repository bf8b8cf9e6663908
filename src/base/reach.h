// Which positions a row of attention sees, its own included: all before it, a window of the last
// ones, or those of its own chunk; and, where a model reads both ways, some behind it.
#pragma once

#include <cstdint>
#include <limits>

namespace forebay::base {

struct Reach {
  int32_t window = 0;  // number of last positions; 0: no window
  int32_t chunk = 0;   // those with an equal position / chunk; 0: no chunks. Not beside a window.
  // Number of positions behind its own, up to the sequence's end. Not 0: all rows of a sequence are
  // in one step. Not beside chunks.
  int32_t ahead = 0;

  static constexpr int32_t kAllAhead = std::numeric_limits<int32_t>::max();

  constexpr Reach(int32_t window = 0, int32_t chunk = 0, int32_t ahead = 0)
      : window(window), chunk(chunk), ahead(ahead) {}

  // The first position that is seen from `position`. Files with their own instruction sets call it.
  __attribute__((always_inline)) int32_t First(int32_t position) const {
    if (window > 0) return position < window ? 0 : position - window + 1;
    return chunk > 0 ? position - position % chunk : 0;
  }
  // The last position that is seen from `position` where the sequence ends with `end`.
  __attribute__((always_inline)) int32_t Last(int32_t position, int32_t end) const {
    return ahead < end - position ? position + ahead : end;
  }
  // A row sees all before it and none behind: blocks may be found by their prefix.
  constexpr bool all() const { return window == 0 && chunk == 0 && ahead == 0; }

  friend constexpr bool operator==(const Reach&, const Reach&) = default;
};

}  // namespace forebay::base
