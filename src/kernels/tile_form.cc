#include "kernels/tile_form.h"

#include <bit>

#include "base/check.h"
#include "kernels/packed_weight.h"
#include "tensor/fp16.h"

namespace forebay::kernels {
namespace {

// Rows of lanes of a plane with so many bits a code.
int64_t PlaneBytes(int width, int64_t pairs) {
  if (width == 0) return 0;
  const int64_t units = (pairs + 7) / 8;  // a unit is 8 pairs: width lanes of 4 units
  return (units * width + 3) / 4 * kPanelColumns * 2 * static_cast<int64_t>(sizeof(uint32_t));
}

}  // namespace

float E4M3Value(uint8_t bits) {
  // The bits of a half, 2^8 times too small; NaN, where all but the sign are set, stays one.
  if ((bits & 0x7F) == 0x7F) return std::bit_cast<float>(0x7FC00000u);
  const auto half = static_cast<uint16_t>((bits & 0x80) << 8 | (bits & 0x7F) << 7);
  return tensor::HalfToFloat(half) * 256;
}

TileParts PartsOf(TileForm form, int64_t begin, int64_t end) {
  FB_CHECK(form != TileForm::kExpanded, "an expanded tile has no parts");
  const FormTraits& traits = TraitsOf(form);
  const int64_t pairs = (end - begin + 1) / 2;
  TileParts parts;
  if (form == TileForm::kW8A8) {
    constexpr int64_t kColumnBytes = kPanelColumns * sizeof(float);
    parts.scales = (end - begin + kQuadValues - 1) / kQuadValues * kQuadBytes;
    parts.minima = parts.scales + kColumnBytes;
    parts.bytes = parts.minima + kColumnBytes;
    parts.num_groups = parts.num_outer = 1;
    return parts;
  }
  const auto touched = [&](int group, int64_t* first, int64_t* count) {
    *first = group == 0 ? 0 : begin / group;
    *count = group == 0 ? 1 : (end - 1) / group + 1 - *first;
  };
  touched(traits.group, &parts.first_group, &parts.num_groups);
  touched(traits.outer_group(), &parts.first_outer, &parts.num_outer);
  parts.high = PlaneBytes(traits.low_bits(), pairs);
  parts.scales = parts.high + PlaneBytes(traits.high_bits(), pairs);
  parts.minima = parts.scales + parts.num_groups * kPanelColumns * traits.scale_bytes();
  parts.outer_scales = parts.minima + parts.num_groups * kPanelColumns * traits.minimum_bytes();
  parts.outer_minima =
      parts.outer_scales + parts.num_outer * kPanelColumns * traits.outer_scale_bytes();
  parts.bytes = parts.outer_minima + parts.num_outer * kPanelColumns * traits.outer_minimum_bytes();
  return parts;
}

}  // namespace forebay::kernels
