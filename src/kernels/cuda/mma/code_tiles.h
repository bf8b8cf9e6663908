// KV in codes of a byte (kernels/kv_codes.h) as tiles of bf16: a head's K, or V, of a block lies as
// in bf16, code for element, so a tile's words follow from the codes at the same place.
#pragma once

#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/mma/row_softmax.h"
#include "kernels/cuda/pair/kv_rows.h"

namespace forebay::kernels::cuda {

inline constexpr int kScalesBytes = kPositions * static_cast<int>(sizeof(float));  // of K, or of V

struct alignas(16) CodeWords {
  uint32_t words[4];
};

// Four codes as bf16.
FB_DEVICE void ExpandCodes(int32_t codes, uint32_t four, uint32_t (&words)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t two = four >> (16 * i);
    words[i] = gpu::PairOf(CodeValue(codes, two & 255), CodeValue(codes, two >> 8 & 255));
  }
}
// Eight codes as 16 bytes of bf16.
FB_DEVICE CodeWords ExpandEight(int32_t codes, uint32_t low, uint32_t high) {
  uint32_t first[2], second[2];
  ExpandCodes(codes, low, first);
  ExpandCodes(codes, high, second);
  return {{first[0], first[1], second[0], second[1]}};
}

}  // namespace forebay::kernels::cuda
