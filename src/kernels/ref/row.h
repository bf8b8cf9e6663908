// Sums over a row as every set forms them: 16 lanes and a fixed tree.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/kv_layout.h"

namespace forebay::kernels::ref {

inline constexpr int kLanes = 16;

// a > b ? a : b, which decides what becomes of NaN.
inline float Max(float a, float b) { return a > b ? a : b; }

// Lanes i and i + 8, then i + 4, i + 2, i + 1. Overwrites the lanes.
template <typename Op>
float ReduceTree(float lanes[kLanes], Op op) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] = op(lanes[i], lanes[i + half]);
  }
  return lanes[0];
}

inline float SumTree(float lanes[kLanes]) {
  return ReduceTree(lanes, [](float a, float b) { return a + b; });
}

// mean(x); `at(j)` is element j.
template <typename At>
float Mean(At at, int64_t columns) {
  float lanes[kLanes] = {};
  for (int64_t j = 0; j < columns; ++j) lanes[j % kLanes] += at(j);
  return SumTree(lanes) / static_cast<float>(columns);
}

// 1 / sqrt(mean(x^2) + eps); `at(j)` is element j.
template <typename At>
float InverseRms(At at, int64_t columns, float eps) {
  float lanes[kLanes] = {};
  for (int64_t j = 0; j < columns; ++j)
    lanes[j % kLanes] = std::fma(at(j), at(j), lanes[j % kLanes]);
  return 1.0f / std::sqrt(SumTree(lanes) / static_cast<float>(columns) + eps);
}

// The digest of a layer's row at a slot of a block; REQUIRES: args.digests.
template <typename Args>
void KeepDigest(const Args& args, uint32_t entry, int64_t slot, uint64_t digest) {
  uint64_t& sum = args.digests[(entry & ~kWindowBit) * int64_t{kBlockTokens} + slot];
  sum = args.first_layer ? digest : sum + digest;
}

}  // namespace forebay::kernels::ref
