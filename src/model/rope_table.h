// Cosines and sines of rotary embeddings.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace forebay::model {

// cos and sin of each position's angles, [positions, rope.inv_freq.size()] each: computed in double, scaled and rounded once.
void FillRope(const RopeSpec& rope, int64_t positions, int num_threads, float* cos_table, float* sin_table);

}  // namespace forebay::model
