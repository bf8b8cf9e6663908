// The KV cache in one byte an element (`--kv-cache-dtype`). K and V of a position and KV head are
// rounded to the compute type first, so that rows that cross ranks (cut_rows.h) give the same
// codes.
//
//   kInt8   s = max|x| / 127 over the head's elements, one fp32 division; 1 where that is 0. A code
//           is x / s, one fp32 division, to nearest even. Where an element is NaN or infinite, s is
//           NaN and codes are 0. Attention multiplies the score by the key's s, and the probability
//           by the value's s before it is rounded.
//   kFP8    A code is x as E4M3, to nearest even; what is greater than 448 becomes 448, infinity
//           too, and NaN stays NaN.
//
// Codes of both are exact in the compute types, so scores and values keep their chains.
#pragma once

#include <cstdint>

#include "kernels/kv_layout.h"

namespace forebay::kernels {

// What a position keeps of one head's K or V.
struct KvRow {
  uint8_t codes[kMaxKeyDim];
  float scale = 1;
};

// `x`: n values that the compute type has. REQUIRES: codes that are not kNone; n <= kMaxKeyDim; a
// thread that flushes denormals.
KvRow KvRowOf(KvCodes codes, const float* x, int n);
// What each of the 256 codes stands for; with kInt8 before the scale.
const float* KvValues(KvCodes codes);
inline float KvValue(KvCodes codes, uint8_t code) { return KvValues(codes)[code]; }

// The hash of a stored row for digests: of its codes, keyed by that of its scale where it has one.
uint64_t KvRowHash(KvCodes codes, const uint8_t* row, float scale, int n, uint64_t key);

}  // namespace forebay::kernels
