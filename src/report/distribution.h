// How values are distributed, in bounded memory: bins each a fiftieth wider than the one before.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace forebay::report {

class Distribution {
 public:
  // A point of the cumulative distribution: `share` of the values are at most `value`, to 2 %.
  struct Point {
    double value = 0, share = 0;
  };

  // REQUIRES: value >= 0. What is below a millionth counts as 0.
  void Add(double value);
  int64_t count() const { return count_; }
  // Ascending, the last with share 1; empty: no values.
  std::vector<Point> Points() const;

 private:
  std::map<int, int64_t> bins_;  // by number, which is at most kBins
  int64_t count_ = 0;
};

}  // namespace forebay::report
