// Packing of x for the register kernels that multiply in fp32: [pairs][2][rows], the odd element of a pair first.
#pragma once

#include "kernels/cpu/simd.h"

namespace forebay::kernels {
namespace {

FB_INLINE float Widen(BF16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  __builtin_memcpy(&result, &bits, 4);
  return result;
}
FB_INLINE float Widen(float value) { return value; }

template <typename T>
void PackExpanded(const T* x, int64_t stride, int rows, int64_t elements, float* out) {
  for (int row = 0; row < rows; ++row) {
    const T* in = x + row * stride;
    float* to = out + row;
    int64_t k = 0;
    for (; k + 2 <= elements; k += 2, to += 2 * rows) {
      to[0] = Widen(in[k + 1]);
      to[rows] = Widen(in[k]);
    }
    if (k < elements) {
      to[0] = 0;
      to[rows] = Widen(in[k]);
    }
  }
}

}  // namespace
}  // namespace forebay::kernels
