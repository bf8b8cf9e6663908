// Sizes of the states of layers (kernels/delta_net.h).
#pragma once

#include <cstdint>

namespace forebay::kernels {

inline constexpr int kConvTaps = 4;  // at most, and what most models have; 2 at least
inline constexpr int kStateLanes = 16, kStatePanel = 64;
inline constexpr int kMaxStateKeyDim = 256;

// Floats of a head's matrix.
constexpr int64_t StateMatrixFloats(int64_t key_dim, int64_t value_dim) {
  return key_dim * ((value_dim + kStateLanes - 1) / kStateLanes * kStateLanes);
}

}  // namespace forebay::kernels
