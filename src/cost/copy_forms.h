// Two forms of what a copy takes by its size, and how well each foretells sizes that it was not
// fitted to. Pure.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace forebay::cost {

struct CopyPoint {
  double bytes = 0, seconds = 0;
};
// The seconds that a copy of so many bytes takes.
using CopyForm = std::function<double(double bytes)>;

// Vasuki's (section 5.1): the bandwidth rises with the size up to a threshold, from which on it is
// saturated; so below it a copy takes as long as one of just that size. The threshold is the first
// point whose bandwidth is within `change` of the next one's. REQUIRES: ascending sizes, two or
// more.
CopyForm SaturatingForm(std::span<const CopyPoint> points, double change = 0.1);
// Ours: a latency and a rate from each point to the next, and beyond the ends as at them.
CopyForm LinearForm(std::span<const CopyPoint> points);

struct FormError {
  double mean = 0, most = 0;  // as parts of what was measured
};
// Each point but the first and the last is left out in turn and foretold by the form of the others.
// REQUIRES: four points or more.
FormError HeldOutError(std::span<const CopyPoint> points,
                       const std::function<CopyForm(std::span<const CopyPoint>)>& fit);

}  // namespace forebay::cost
