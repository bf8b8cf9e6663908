// Values counted between bounds, as Prometheus has it. Copies are cheap: nothing is allocated.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "base/check.h"

namespace forebay::base {

class Histogram {
 public:
  static constexpr size_t kMostBounds = 31;

  // `bounds` ascend, and outlive the histogram and its copies. REQUIRES: kMostBounds at most.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds) {
    FB_CHECK(bounds.size() <= kMostBounds, "{} bounds", bounds.size());
  }

  // Counts a value with those up to the first bound that is not below it.
  void Add(double value) {
    const auto bound = std::ranges::lower_bound(bounds_, value);
    ++counts_[static_cast<size_t>(bound - bounds_.begin())];
    sum_ += value;
  }
  // REQUIRES: of the same bounds.
  void Add(const Histogram& other) {
    FB_CHECK(bounds_.data() == other.bounds_.data(), "histograms of other bounds");
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    sum_ += other.sum_;
  }

  std::span<const double> bounds() const { return bounds_; }
  // The values up to each bound and above the one before; at the end those above all.
  std::span<const int64_t> counts() const { return std::span(counts_).first(bounds_.size() + 1); }
  double sum() const { return sum_; }

 private:
  std::span<const double> bounds_;
  std::array<int64_t, kMostBounds + 1> counts_{};
  double sum_ = 0;
};

}  // namespace forebay::base
