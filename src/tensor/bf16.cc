#include "tensor/bf16.h"

namespace forebay::tensor {

void RoundToBF16(const float* values, int64_t count, BF16* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = ToBF16(values[i]);
}

}  // namespace forebay::tensor
