#include "report/distribution.h"

#include <algorithm>
#include <cmath>

namespace forebay::report {
namespace {

constexpr double kWiden = 1.02, kLeast = 1e-6;
constexpr int kBins = 2500;  // up to 3e15

}  // namespace

void Distribution::Add(double value) {
  int bin = 0;
  if (value > kLeast) {
    bin = 1 + static_cast<int>(std::lround(std::log(value / kLeast) / std::log(kWiden)));
    bin = std::min(bin, kBins);
  }
  ++bins_[bin];
  ++count_;
}

std::vector<Distribution::Point> Distribution::Points() const {
  std::vector<Point> points;
  int64_t before = 0;
  for (const auto& [bin, count] : bins_) {
    before += count;
    points.push_back({bin == 0 ? 0 : kLeast * std::pow(kWiden, bin - 1),
                      static_cast<double>(before) / static_cast<double>(count_)});
  }
  return points;
}

}  // namespace forebay::report
