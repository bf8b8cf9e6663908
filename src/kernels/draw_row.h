// What draws a token from a row of logits, where nothing but these numbers changes the draw.
#pragma once

#include <cstdint>

namespace forebay::kernels {

struct DrawRow {
  double unit = 0;        // uniform in [0, 1): which part of the sum of weights is drawn
  float temperature = 0;  // 0: the greatest logit
  float min_p = 0, top_p = 1;
  int32_t top_k = 0;     // 0: off
  int32_t row = 0;       // of the step's logits
  int32_t sequence = 0;  // whose token it is in StepBatch::sampled
};

// In place of a token: the logits are all NaN.
inline constexpr int32_t kNothingDrawn = -1;

}  // namespace forebay::kernels
