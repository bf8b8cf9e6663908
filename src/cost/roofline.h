// Time at datasheet rates: the unit in which tables measure. tools/fit_profiles.py has the same
// formulas.
#pragma once

#include "cost/profile.h"

namespace forebay::cost {

struct Roofline {
  double compute_seconds = 0;
  double memory_seconds = 0;  // memory, or the link
  double seconds() const {
    return compute_seconds > memory_seconds ? compute_seconds : memory_seconds;
  }
};

// The roofline at a table's point; attention has heads of `head_dim`.
Roofline RooflineAt(TableOp op, NumberFormat format, bool by_weights, const Point& point,
                    double head_dim, const DeviceProfile& device);

// The roofline of given work.
inline Roofline RooflineOf(double flops, double bytes, NumberFormat format,
                           const DeviceProfile& device) {
  return {flops / device.Peak(format), bytes / device.memory_bytes_per_s};
}

// Bytes that a rank sends in a collective over its buffer of `bytes`.
double SentBytes(Collective collective, double bytes, double ranks);

}  // namespace forebay::cost
