// Cosines and sines of rotary embeddings, and what stands in for them in layers without.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace forebay::model {

// cos and sin of each position's angles, [positions, rope.inv_freq.size()] each: computed in
// double, scaled and rounded once. `positions`: the most of the run.
void FillRope(const RopeSpec& rope, int64_t positions, int num_threads, float* cos_table,
              float* sin_table);

// What q is multiplied by at each position in layers without rope: in double, rounded once.
// REQUIRES: the model has a temperature.
void FillTemperature(const ModelConfig& config, int64_t positions, float* table);

}  // namespace forebay::model
