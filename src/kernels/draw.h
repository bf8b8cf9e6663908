// Draws of tokens where the logits lie: those of sample/sampler.h, to the token, for rows without
// bias, penalties, banned tokens or log probabilities. Kernel sets whose logits the host reaches
// have no such row: the host draws all.
#pragma once

#include "device/device.h"
#include "kernels/draw_row.h"

namespace forebay::kernels {

struct KernelSet;

struct DrawRowsArgs {
  const float* logits = nullptr;  // [.., stride], of the step's logit row `first_row` on
  int64_t stride = 0;
  int32_t vocab = 0, first_row = 0;
  int32_t num_draws = 0;
  int32_t weighed_draws = 0;       // those with a temperature, at most
  const DrawRow* draws = nullptr;  // [num_draws], by rising row
  int32_t* drawn = nullptr;        // [num_draws]: tokens, kNothingDrawn
  int32_t* sampled = nullptr;      // StepBatch::sampled; stays where nothing is drawn
};

// Log probabilities where the logits lie, as far as kernels need to look at them.
struct LikelyRowsArgs {
  const float* logits = nullptr;  // as in DrawRowsArgs
  int64_t stride = 0;
  int32_t vocab = 0, first_row = 0;
  int32_t num_rows = 0;
  const LikelyRow* rows = nullptr;  // [num_rows], by rising row
  const int32_t* drawn = nullptr;   // DrawRowsArgs::drawn, of the whole step
  LikelyHead* heads = nullptr;      // [num_rows]
  LikelyToken* tokens = nullptr;    // of the whole step
};

// Checks the arguments (FB_CHECK), describes the operation and enqueues it. REQUIRES: the set has
// it.
void DrawRows(device::Stream& stream, const KernelSet& kernels, const DrawRowsArgs& args);
// REQUIRES: the set draws rows; the rows' draws come before; kMostLikely tokens at most.
void LikelyRows(device::Stream& stream, const KernelSet& kernels, const LikelyRowsArgs& args);

}  // namespace forebay::kernels
