// Two forms of what a copy takes by its size, and how well each foretells sizes that it was not
// fitted to. Pure.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "cost/profile.h"

namespace forebay::cost {

struct CopyPoint {
  double bytes = 0, seconds = 0;
};
// The seconds that a copy of `bytes` takes.
using CopyForm = std::function<double(double bytes)>;

// Vasuki's (section 5.1): the bandwidth rises with the size up to a threshold, from which on it is
// saturated; so below it a copy takes as long as one of just that size. The threshold is the first
// point whose bandwidth is within `change` of the next one's. REQUIRES: ascending sizes, two or
// more.
CopyForm SaturatingForm(std::span<const CopyPoint> points, double change = 0.1);
// Ours: a latency and a rate from each point to the next, and beyond the ends as at them.
CopyForm LinearForm(std::span<const CopyPoint> points);

// What a copy between a device and its host's memory takes while nothing else moves, by our form:
// of the copies of one stream that the profile has a table of, else of the link's latency and
// rate. Nothing for no bytes, and never less for more.
CopyForm HostCopies(const DeviceProfile& device);
// Whether these go by copies that were measured by size; else by the link's datasheet.
bool HasHostCurve(const DeviceProfile& device);

struct FormError {
  double mean = 0, most = 0;  // as parts of what was measured
};
// The error of a form that is fitted to every second point, at those in between: one half of the
// sizes judges what the other half says. REQUIRES: ascending sizes, three or more.
FormError HeldOutError(std::span<const CopyPoint> points,
                       const std::function<CopyForm(std::span<const CopyPoint>)>& fit);

}  // namespace forebay::cost
