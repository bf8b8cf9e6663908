// Where all streams and flows of a simulation are at one time, told from the repeated body that one
// of the streams begins then, and what had been done before. From two scenes that are alike the
// same follows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "device/sim/links.h"

namespace forebay::device {

struct Scene {
  bool known = false;
  TimePs time = 0;
  std::vector<int64_t> places;
  std::vector<double> runs;  // remaining work, and speeds
  std::vector<Links::FlowState> flows;
  // so far, by stream and by link; waited: for peers
  std::vector<TimePs> busy, waited, moved;
  std::vector<Links::Carried> carried;

  void Begin(TimePs at) {
    known = true;
    time = at;
    places.clear();
    runs.clear();
    busy.clear();
    waited.clear();
    moved.clear();
  }

  // But for what sums in another order may differ by.
  bool IsLike(const Scene& other) const {
    const auto near = [](double a, double b) {
      return std::abs(a - b) <= 1e-9 * std::max(1.0, std::abs(a));
    };
    const auto like = [&](const Links::FlowState& a, const Links::FlowState& b) {
      return a.stream == b.stream && a.pair == b.pair && a.due_in == b.due_in &&
             near(a.remaining, b.remaining);
    };
    return known && other.known && places == other.places &&
           std::ranges::equal(runs, other.runs, near) &&
           std::ranges::equal(flows, other.flows, like);
  }
};

}  // namespace forebay::device
