// Frequencies of rotary embeddings with the scalings that config.json names.
#pragma once

#include <cstdint>
#include <optional>

#include "model/config.h"

namespace forebay::model {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongrope, kProportional };

// Names are config.json's. What a scaling does not use is ignored.
struct RopeParameters {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double original_max_position_embeddings = 0;       // llama3, yarn
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn: rotations over the original context
  bool truncate = true;  // yarn: the range of blended dimensions is widened to whole ones
  // yarn, longrope (the first alone): cos and sin are scaled
  std::optional<double> attention_factor, mscale, mscale_all_dim;
  // longrope: what each frequency is divided by, in runs of at most the original length and in
  // longer ones. `factor`: the longest context over the original one.
  std::vector<double> short_factors, long_factors;
  double turned_part = 1;  // proportional: of the frequencies, the first; the others are 0
};

// What element i of a head turns by at each position, unscaled: theta^(-2 i / head_dim).
double RopeFrequency(double theta, int64_t i, int64_t head_dim);

// Of a head of which the first `rotary_dim` elements are turned. REQUIRES: both even, positive.
// theta, factor and the original length are positive where used, and low_freq_factor is at most
// high_freq_factor. longrope has rotary_dim / 2 factors of each kind.
RopeSpec MakeRope(const RopeParameters& parameters, int64_t rotary_dim, int64_t head_dim);

// What YaRN multiplies the scores of latent attention by, beside scaling cos and sin: m^2, m =
// 0.1 mscale_all_dim ln(factor) + 1. Else 1.
double YarnScoreScale(const RopeParameters& parameters);

// The longest context: yarn and linear scaling lengthen the original one by their factor, which
// model cards do not write into `max_position_embeddings`. Never less than that one.
int64_t LengthenedContext(const RopeParameters& parameters, int64_t max_position_embeddings);

}  // namespace forebay::model
