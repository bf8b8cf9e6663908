#include "weights/stored_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

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

void QuantiseRow(const float* values, int64_t k, StoredRowMemory* out) {
  out->Resize(kernels::TileForm::kW8A8, k);
  float most = 0;
  for (int64_t i = 0; i < k; ++i) most = std::max(most, std::abs(values[i]));
  float scale = most / 127.0f;
  if (scale < std::numeric_limits<float>::min()) scale = 1;
  for (int64_t i = 0; i < k; ++i)
    out->codes[static_cast<size_t>(i)] = static_cast<uint8_t>(std::lrintf(values[i] / scale));
  std::memcpy(out->scales.data(), &scale, sizeof(scale));
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
