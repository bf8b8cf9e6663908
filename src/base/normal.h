// Normal numbers.
#pragma once

#include <cmath>
#include <numbers>

#include "base/rng.h"

namespace forebay::base {

// A normal variable of mean 0 and deviation 1 (Box and Muller, 1958).
inline double Normal(Rng& rng) {
  const double radius = std::sqrt(-2 * std::log(1 - rng.Uniform()));
  return radius * std::cos(2 * std::numbers::pi * rng.Uniform());
}

}  // namespace forebay::base
