// Draws of tokens where the logits lie: those of sample/sampler.h, to the token, for rows without
// bias, penalties, banned tokens or log probabilities. Kernel sets whose logits the host reaches
// have no such row: the host draws all.
#pragma once

#include "device/device.h"
#include "kernels/draw_row.h"

namespace forebay::kernels {

struct KernelSet;

struct DrawRowsArgs {
  const float* logits = nullptr;  // [num_rows, stride]
  int64_t stride = 0;
  int32_t vocab = 0, num_rows = 0;
  int32_t weighed_rows = 0;       // rows with a temperature, at most
  const DrawRow* rows = nullptr;  // [num_rows]
  int32_t* drawn = nullptr;       // [num_rows]: tokens, kNothingDrawn; rows of the host's stay
  int32_t* sampled = nullptr;     // StepBatch::sampled; stays where nothing is drawn
};

// Checks the arguments (FB_CHECK), describes the operation and enqueues it. REQUIRES: the set has
// it.
void DrawRows(device::Stream& stream, const KernelSet& kernels, const DrawRowsArgs& args);

}  // namespace forebay::kernels
