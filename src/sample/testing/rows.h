// Rows of logits.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace forebay::sample {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// About normal.
inline std::vector<float> RandomRow(size_t size, uint64_t seed, double spread) {
  base::Rng rng(seed);
  std::vector<float> row(size);
  for (float& x : row) {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += rng.Uniform();
    x = static_cast<float>((sum - 6) * spread);
  }
  return row;
}

}  // namespace forebay::sample
