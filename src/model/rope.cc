#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace forebay::model {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// Llama 3.1: wavelengths beyond the original context are stretched by `factor`, short ones stay,
// those between are blended (transformers, modeling_rope_utils.py, _compute_llama3_parameters).
double ScaleLlama3(const RopeParameters& p, double frequency) {
  // over the original context
  const double turns = p.original_max_position_embeddings * frequency / kTwoPi;
  if (turns < p.low_freq_factor) return frequency / p.factor;
  if (turns >= p.high_freq_factor) return frequency;
  const double smooth = (turns - p.low_freq_factor) / (p.high_freq_factor - p.low_freq_factor);
  return (1 - smooth) * frequency / p.factor + smooth * frequency;
}

// YaRN (arXiv 2309.00071, section 3.2): the dimensions [low, high] between which extrapolation
// turns to interpolation.
struct YarnRange {
  YarnRange(const RopeParameters& p, int64_t head_dim) {
    const auto dimension = [&](double rotations) {
      return static_cast<double>(head_dim) *
             std::log(p.original_max_position_embeddings / (rotations * kTwoPi)) /
             (2 * std::log(p.theta));
    };
    low = dimension(p.beta_fast);
    high = dimension(p.beta_slow);
    if (p.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(head_dim - 1));
    if (low == high) high += 0.001;
  }
  double low, high;
};

double ScaleYarn(const RopeParameters& p, const YarnRange& range, int64_t i, double frequency) {
  const double interpolated =
      std::clamp((static_cast<double>(i) - range.low) / (range.high - range.low), 0.0, 1.0);
  return frequency / p.factor * interpolated + frequency * (1 - interpolated);
}

double YarnMagnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double YarnCosSinScale(const RopeParameters& p) {
  if (p.attention_factor) return *p.attention_factor;
  if (p.mscale.value_or(0) != 0 && p.mscale_all_dim.value_or(0) != 0) {
    return YarnMagnitude(p.factor, *p.mscale) / YarnMagnitude(p.factor, *p.mscale_all_dim);
  }
  return YarnMagnitude(p.factor, 1);
}

// longrope (arXiv 2402.13753): cos and sin grow with the context's length over the original one.
double LongropeCosSinScale(const RopeParameters& p) {
  if (p.attention_factor) return *p.attention_factor;
  if (p.factor <= 1) return 1;
  return std::sqrt(1 + std::log(p.factor) / std::log(p.original_max_position_embeddings));
}

}  // namespace

double RopeFrequency(double theta, int64_t i, int64_t head_dim) {
  return std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
}

RopeSpec MakeRope(const RopeParameters& p, int64_t rotary_dim, int64_t head_dim) {
  RopeSpec rope;
  const bool longrope = p.scaling == RopeScaling::kLongrope;
  const std::optional<YarnRange> yarn =
      p.scaling == RopeScaling::kYarn ? std::optional<YarnRange>({p, rotary_dim}) : std::nullopt;
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    double frequency = RopeFrequency(p.theta, i, rotary_dim);
    if (longrope)
      rope.short_inv_freq.push_back(
          static_cast<float>(frequency / p.short_factors[static_cast<size_t>(i)]));
    switch (p.scaling) {
      case RopeScaling::kNone: break;
      case RopeScaling::kLinear: frequency /= p.factor; break;
      case RopeScaling::kLlama3: frequency = ScaleLlama3(p, frequency); break;
      case RopeScaling::kYarn: frequency = ScaleYarn(p, *yarn, i, frequency); break;
      case RopeScaling::kProportional:
        frequency = i < static_cast<int64_t>(p.turned_part * static_cast<double>(rotary_dim)) / 2
                        ? frequency / p.factor
                        : 0;
        break;
      case RopeScaling::kLongrope: frequency /= p.long_factors[static_cast<size_t>(i)]; break;
    }
    rope.inv_freq.push_back(static_cast<float>(frequency));
  }
  rope.inv_freq.resize(static_cast<size_t>(head_dim / 2));
  if (longrope) {
    rope.short_inv_freq.resize(rope.inv_freq.size());
    rope.short_positions = static_cast<int64_t>(p.original_max_position_embeddings);
    rope.cos_sin_scale = static_cast<float>(LongropeCosSinScale(p));
  }
  if (p.scaling == RopeScaling::kYarn) rope.cos_sin_scale = static_cast<float>(YarnCosSinScale(p));
  return rope;
}

double YarnScoreScale(const RopeParameters& p) {
  const double mscale = p.mscale_all_dim.value_or(0);
  if (p.scaling != RopeScaling::kYarn || mscale == 0) return 1;
  return YarnMagnitude(p.factor, mscale) * YarnMagnitude(p.factor, mscale);
}

int64_t LengthenedContext(const RopeParameters& parameters, int64_t max_position_embeddings) {
  if (parameters.scaling != RopeScaling::kLinear && parameters.scaling != RopeScaling::kYarn)
    return max_position_embeddings;
  constexpr double kMost = 1 << 30;
  const double length = parameters.original_max_position_embeddings * parameters.factor;
  return std::max(max_position_embeddings, static_cast<int64_t>(std::min(length, kMost)));
}

}  // namespace forebay::model
