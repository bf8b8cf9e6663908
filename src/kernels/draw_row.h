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

// Whose log probabilities are wanted of a row of logits: the most likely tokens' and one token's.
struct LikelyRow {
  int32_t row = 0;     // of the step's logits
  int32_t token = 0;   // ~i: what draw i of the step has drawn
  int32_t top_k = 0;   // how many of the most likely ones
  int32_t tokens = 0;  // where these go: LikelyRowsArgs::tokens
};
// The most that kernels find.
inline constexpr int32_t kMostLikely = 512;

// What a row's log probabilities follow from (sample/sampler.h).
struct LikelyHead {
  double sum = 0;       // of e^(logit - max), in the order of sample/softmax.h
  float max = 0;        // the greatest logit, at most the greatest float
  float logit = 0;      // the token's
  int32_t token = 0;    // kNothingDrawn: the logits are all NaN, and nothing else is said
  int32_t greater = 0;  // how many logits are greater, where it is not among the most likely ones
  int32_t place = 0;    // its place among these; -1: it has none
  int32_t count = 0;    // of the most likely ones
};
// Falling logit, ties by rising id. NaN is -infinity, +infinity the greatest float.
struct LikelyToken {
  int32_t token;
  float logit;
};

}  // namespace forebay::kernels
