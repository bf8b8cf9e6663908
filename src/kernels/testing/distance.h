// How far computed values are from a formula's.
#pragma once

#include <cmath>
#include <vector>

#include "tensor/bf16.h"

namespace forebay::kernels::testing {

// ||ours - reference|| / ||reference||
template <typename T>
double Distance(const std::vector<T>& ours, const std::vector<double>& reference) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double d = tensor::ToFloat(ours[i]) - reference[i];
    difference += d * d;
    norm += reference[i] * reference[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace forebay::kernels::testing
