#include "weights/stored_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace forebay::weights {
namespace {

using kernels::Scale;

template <typename T>
T At(const std::vector<std::byte>& values, int64_t i) {
  T value;
  std::memcpy(&value, values.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

bool IsBadHalf(const std::vector<std::byte>& values, int64_t i) {
  return (At<uint16_t>(values, i) & 0x7C00) == 0x7C00;
}
// Weights of a greater scale may be beyond fp32: 2^118 x 448 is not.
bool IsBadFloat(const std::vector<std::byte>& values, int64_t i) {
  return (At<uint32_t>(values, i) & 0x7FFFFFFF) >= (127u + 118) << 23;
}

bool IsBad(Scale scale, const std::vector<std::byte>& values, int64_t i) {
  switch (scale) {
    case Scale::kF16: return IsBadHalf(values, i);
    case Scale::kF32: return IsBadFloat(values, i);
    case Scale::kE8M0: return At<uint8_t>(values, i) > kernels::kMostE8M0;
    case Scale::kE4M3: return (At<uint8_t>(values, i) & 0x7F) == 0x7F;
    default: return false;
  }
}

// To nearest even; infinity beyond fp16.
uint16_t ToHalf(float value) {
  constexpr float kLeastNormal = 0x1p-14f, kDenormalSteps = 0x1p24f;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
  const float magnitude = std::abs(value);
  if (magnitude < kLeastNormal)  // the least normal number is the step behind the last denormal
    return static_cast<uint16_t>(sign |
                                 static_cast<uint32_t>(std::lrintf(magnitude * kDenormalSteps)));
  constexpr uint32_t kExponents = 112u << 10;  // the difference of both types' biases
  const uint32_t rounded = (rest + 0xFFF + (rest >> 13 & 1)) >> 13;
  return static_cast<uint16_t>(sign | std::min(rounded - kExponents, 0x7C00u));
}

void QuantiseW8A8(const float* values, int64_t k, StoredRowMemory* out) {
  float most = 0;
  for (int64_t i = 0; i < k; ++i) most = std::max(most, std::abs(values[i]));
  float scale = most / 127.0f;
  if (scale < std::numeric_limits<float>::min()) scale = 1;
  for (int64_t i = 0; i < k; ++i)
    out->codes[static_cast<size_t>(i)] = static_cast<uint8_t>(std::lrintf(values[i] / scale));
  std::memcpy(out->scales.data(), &scale, sizeof(scale));
}

void QuantiseQ4_0(const float* values, int64_t k, StoredRowMemory* out) {
  constexpr int64_t kGroup = kernels::TraitsOf(kernels::TileForm::kQ4_0).group;
  for (int64_t group = 0; group * kGroup < k; ++group) {
    const int64_t begin = group * kGroup, end = std::min(k, begin + kGroup);
    float extreme = 0;
    for (int64_t i = begin; i < end; ++i) {
      if (std::abs(values[i]) > std::abs(extreme)) extreme = values[i];
    }
    const float scale = extreme / -8;
    // A lesser scale is 0 as fp16, whatever the codes are.
    const float inverse = std::abs(scale) < std::numeric_limits<float>::min() ? 0 : 1 / scale;
    for (int64_t i = begin; i < end; ++i) {
      out->codes[static_cast<size_t>(i)] =
          static_cast<uint8_t>(std::min(15, static_cast<int>(values[i] * inverse + 8.5f)));
    }
    const uint16_t half = ToHalf(scale);
    std::memcpy(out->scales.data() + group * static_cast<int64_t>(sizeof(half)), &half,
                sizeof(half));
  }
}

}  // namespace

void StoredRowMemory::Resize(kernels::TileForm form, int64_t k) {
  const kernels::FormTraits& traits = kernels::TraitsOf(form);
  const kernels::StoredRowSizes sizes = kernels::SizesOf(form, k);
  const auto bytes = [](int64_t count, int each) { return static_cast<size_t>(count * each); };
  codes.resize(static_cast<size_t>(k));
  scales.resize(bytes(sizes.groups, traits.scale_bytes()));
  minima.resize(bytes(sizes.groups, traits.minimum_bytes()));
  outer_scales.resize(bytes(sizes.outer, traits.outer_scale_bytes()));
  outer_minima.resize(bytes(sizes.outer, traits.outer_minimum_bytes()));
}

void QuantiseRow(kernels::TileForm form, const float* values, int64_t k, StoredRowMemory* out) {
  FB_CHECK(CanQuantise(form), "values become {}", kernels::TraitsOf(form).name);
  out->Resize(form, k);
  form == kernels::TileForm::kQ4_0 ? QuantiseQ4_0(values, k, out) : QuantiseW8A8(values, k, out);
}

int64_t FindBadGroup(kernels::TileForm form, const StoredRowMemory& row, int64_t k) {
  const kernels::FormTraits& traits = kernels::TraitsOf(form);
  const kernels::StoredRowSizes sizes = kernels::SizesOf(form, k);
  const bool has_minima =
      traits.minimum_bytes() > 0 && traits.minimum != kernels::Minimum::kZeroPoint;
  for (int64_t i = 0; i < sizes.groups; ++i) {
    if (IsBad(traits.scale, row.scales, i) || (has_minima && IsBad(traits.scale, row.minima, i)))
      return i;
  }
  const int64_t groups_an_outer =
      traits.outer_group() == 0 ? 0 : traits.outer_group() / traits.group;
  for (int64_t i = 0; i < sizes.outer; ++i) {
    if ((traits.outer_scale_bytes() == 2 && IsBadHalf(row.outer_scales, i)) ||
        (traits.outer_scale_bytes() == 4 && IsBadFloat(row.outer_scales, i)) ||
        (traits.outer_minimum_bytes() == 2 && IsBadHalf(row.outer_minima, i)))
      return i * groups_an_outer;
  }
  if (traits.codes == kernels::Codes::kE4M3) {
    for (int64_t i = 0; i < k; ++i) {
      if ((row.codes[static_cast<size_t>(i)] & 0x7F) == 0x7F)
        return traits.group == 0 ? 0 : i / traits.group;
    }
  }
  return -1;
}

}  // namespace forebay::weights
