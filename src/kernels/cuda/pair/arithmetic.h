// The CPU's contract in device code: rounding, the exponential, sums of 16 lanes, hashes. Each is
// that of the header named, to the bit.
#pragma once

#include "base/rng.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/pair/params.h"
#include "kernels/exp.h"
#include "tensor/bf16.h"

namespace forebay::kernels::cuda {

using tensor::BF16;
using tensor::RoundTo;
using tensor::ToFloat;

inline constexpr int kLanes16 = 16;  // of a sum over a row
#define FB_INFINITY (gpu::FromBits(0x7F800000u))

// kernels/exp.h.
FB_DEVICE float ExpOf(float x) {
  using C = ExpConstants;
  constexpr float q0 = C::kQ[0], q1 = C::kQ[1], q2 = C::kQ[2], q3 = C::kQ[3], q4 = C::kQ[4];
  if (x < C::kLowest) return 0;
  if (!(x <= C::kHighest)) return x + FB_INFINITY;
  const float t = gpu::Fma(x, C::kLog2E, C::kRound);
  const float n = t - C::kRound;
  const float r = gpu::Fma(n, -C::kLn2Low, gpu::Fma(n, -C::kLn2High, x));
  const float q = gpu::Fma(gpu::Fma(gpu::Fma(gpu::Fma(q4, r, q3), r, q2), r, q1), r, q0);
  const float p = gpu::Fma(gpu::Fma(q, r, 1.0f), r, 1.0f);
  return gpu::FromBits(gpu::Bits(p) + (gpu::Bits(t) << 23));
}
FB_DEVICE float SigmoidOf(float x) { return gpu::Div(1.0f, 1.0f + ExpOf(-x)); }
FB_DEVICE float SoftplusOf(float x) {
  using C = SoftplusConstants;
  constexpr float odd[8] = {C::kOdd[0], C::kOdd[1], C::kOdd[2], C::kOdd[3],
                            C::kOdd[4], C::kOdd[5], C::kOdd[6], C::kOdd[7]};
  const float u = ExpOf(x < 0 ? x : -x), s = gpu::Div(u, 2.0f + u), square = s * s;
  float sum = odd[7];
  for (int i = 6; i >= 0; --i) sum = gpu::Fma(sum, square, odd[i]);
  return gpu::Fma(s + s, sum, 0 < x ? x : 0.0f);
}
FB_DEVICE float SiluOf(float x) { return gpu::Div(x, 1.0f + ExpOf(-x)); }
FB_DEVICE float CapOf(float x, float c) {
  const float scaled = gpu::Div(x, c);
  return c * (1.0f - gpu::Div(2.0f, ExpOf(scaled + scaled) + 1.0f));
}
FB_DEVICE float GeluOf(float x) {
  using C = GeluConstants;
  const float u = x * gpu::Fma(x * x, C::kCubic, 1.0f) * C::kTwoRoot;
  return gpu::Div(x, 1.0f + ExpOf(-u));
}
FB_DEVICE float ErfGeluOf(float x) {
  using C = ErfGeluConstants;
  constexpr float p0 = C::kP[0], p1 = C::kP[1], p2 = C::kP[2], p3 = C::kP[3], p4 = C::kP[4];
  const float size = x < 0 ? -x : x, z = size * C::kHalfRoot;
  const float t = gpu::Div(1.0f, gpu::Fma(z, C::kC, 1.0f));
  const float p = gpu::Fma(gpu::Fma(gpu::Fma(gpu::Fma(p4, t, p3), t, p2), t, p1), t, p0);
  const float tail = p * t * ExpOf(-(z * z)) * (size * 0.5f);
  return (x < 0 ? 0.0f : x) - tail;
}
FB_DEVICE float ClampedSiluOf(float x) {
  using C = ClampedSiluConstants;
  const float gate = C::kLimit < x ? C::kLimit : x;
  return gpu::Div(gate, 1.0f + ExpOf(-(gate * C::kSlope)));
}
FB_DEVICE float ClampedUpOf(float x) {
  using C = ClampedSiluConstants;
  const float below = C::kLimit < x ? C::kLimit : x;
  return (below < -C::kLimit ? -C::kLimit : below) + 1.0f;
}

FB_DEVICE float MaxOf(float a, float b) { return a > b ? a : b; }

// The tree over the values of lanes 0 to 15: lanes i and i + 8, then i + 4, i + 2, i + 1. All lanes
// call it and get the result.
FB_DEVICE float SumTree16(float lane_value) {
  for (int half = kLanes16 / 2; half > 0; half /= 2)
    lane_value = lane_value + gpu::Shuffle(lane_value, gpu::Lane() + half);
  return gpu::Shuffle(lane_value, 0);
}
FB_DEVICE float MaxTree16(float lane_value) {
  for (int half = kLanes16 / 2; half > 0; half /= 2)
    lane_value = MaxOf(lane_value, gpu::Shuffle(lane_value, gpu::Lane() + half));
  return gpu::Shuffle(lane_value, 0);
}

// The sum of squares, or of values, of a row by one warp; at(j) is element j.
template <typename At>
FB_DEVICE float SumOfSquares(At at, int columns) {
  float sum = 0;
  if (gpu::Lane() < kLanes16) {
    for (int j = gpu::Lane(); j < columns; j += kLanes16) {
      const float x = at(j);
      sum = gpu::Fma(x, x, sum);
    }
  }
  return SumTree16(sum);
}
template <typename At>
FB_DEVICE float MeanOf(At at, int columns) {
  float sum = 0;
  if (gpu::Lane() < kLanes16) {
    for (int j = gpu::Lane(); j < columns; j += kLanes16) sum = sum + at(j);
  }
  return gpu::Div(SumTree16(sum), static_cast<float>(columns));
}
// 1 / sqrt(mean(x^2) + eps), likewise.
template <typename At>
FB_DEVICE float InverseRmsOf(At at, int columns, float eps) {
  const float sum = SumOfSquares(at, columns);
  return gpu::Div(1.0f, gpu::Sqrt(gpu::Div(sum, static_cast<float>(columns)) + eps));
}

// kernels/digest.h: the key of what is hashed, and what word i adds to the hash's sum.
FB_DEVICE uint64_t DigestKeyOf(uint64_t kind, int64_t a, int64_t b, int64_t c) {
  uint64_t key = base::Mix64(base::Mix64(kind));
  key = base::Combine64(key, static_cast<uint64_t>(a));
  key = base::Combine64(key, static_cast<uint64_t>(b));
  return base::Combine64(key, static_cast<uint64_t>(c));
}
FB_DEVICE uint64_t DigestProduct(uint64_t word, int i) {
  const auto constant = [](int at) {
    return static_cast<uint32_t>(base::Mix64(static_cast<uint64_t>(at)) >> 32);
  };
  const uint32_t low = static_cast<uint32_t>(word) + constant(2 * i);
  const uint32_t high = static_cast<uint32_t>(word >> 32) + constant(2 * i + 1);
  return static_cast<uint64_t>(low) * high;
}
// Elements of one word of a hash, and their bits at their place in it.
template <typename T>
inline constexpr int kPerWord = 8 / static_cast<int>(sizeof(T));
FB_DEVICE uint64_t WordBits(float value, int place) {
  return static_cast<uint64_t>(gpu::Bits(value)) << (32 * place);
}
FB_DEVICE uint64_t WordBits(BF16 value, int place) {
  return static_cast<uint64_t>(value.bits) << (16 * place);
}
FB_DEVICE uint64_t WordBits(uint8_t code, int place) {
  return static_cast<uint64_t>(code) << (8 * place);
}

// A sum modulo 2^64 over the lanes of a warp; all get it.
FB_DEVICE uint64_t WarpSum(uint64_t value) {
  for (int mask = 16; mask > 0; mask /= 2)
    value += static_cast<uint64_t>(gpu::ShuffleXor(static_cast<unsigned long long>(value), mask));
  return value;
}
// The same over the block, for thread 0. `shared`: a word for each warp.
FB_DEVICE uint64_t BlockSum(uint64_t value, uint64_t* shared) {
  value = WarpSum(value);
  if (gpu::Lane() == 0) shared[gpu::Warp()] = value;
  gpu::Sync();
  uint64_t sum = 0;
  for (int warp = 0; warp < gpu::Warps(); ++warp) sum += shared[warp];
  return sum;
}

template <typename T>
FB_DEVICE const T* As(const std::byte* data) {
  return reinterpret_cast<const T*>(data);
}
template <typename T>
FB_DEVICE T* As(std::byte* data) {
  return reinterpret_cast<T*>(data);
}

// Calls body(T{}) with the type of `element`.
#define FB_FOR_ELEMENT(element, Function, ...) \
  do {                                         \
    if ((element) == Element::kF32) {          \
      Function<float>(__VA_ARGS__);            \
    } else {                                   \
      Function<BF16>(__VA_ARGS__);             \
    }                                          \
  } while (false)

}  // namespace forebay::kernels::cuda
