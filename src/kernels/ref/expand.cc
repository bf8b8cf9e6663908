#include "kernels/expand.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tensor/bf16.h"
#include "tensor/fp16.h"

namespace forebay::kernels {
namespace {

template <typename T>
T At(const std::byte* values, int64_t i) {
  T value;
  std::memcpy(&value, values + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Scales and minima of a row of a tensor, or of a column of a tile: entry i is the i-th from
// `first` on, `stride` entries apart.
struct Scales {
  const std::byte *scales, *minima, *outer_scales, *outer_minima;
  int64_t first_group = 0, first_outer = 0, stride = 1, column = 0;

  int64_t Entry(int64_t i, int64_t first) const { return (i - first) * stride + column; }
};

float ScaleAt(const FormTraits& traits, const std::byte* values, int64_t entry,
              const std::byte* outer, int64_t outer_entry) {
  switch (traits.scale) {
    case Scale::kF16: return tensor::HalfToFloat(At<uint16_t>(values, entry));
    case Scale::kF32: return At<float>(values, entry);
    // Four times too large, so that it is no denormal; the codes are a quarter.
    case Scale::kE8M0: return std::bit_cast<float>((At<uint8_t>(values, entry) + 2u) << 23);
    case Scale::kSignedByte:
      return tensor::HalfToFloat(At<uint16_t>(outer, outer_entry)) *
             static_cast<float>(At<int8_t>(values, entry));
    case Scale::kUnsignedByte:
      return tensor::HalfToFloat(At<uint16_t>(outer, outer_entry)) *
             static_cast<float>(At<uint8_t>(values, entry));
    case Scale::kE4M3: return E4M3Value(At<uint8_t>(values, entry)) * At<float>(outer, outer_entry);
  }
  return 0;
}

float ValueOf(const FormTraits& traits, int code) {
  switch (traits.codes) {
    case Codes::kUnsigned: return static_cast<float>(code - traits.offset);
    case Codes::kSigned: return static_cast<float>(static_cast<int8_t>(code));
    case Codes::kIQ4: return kIQ4Values[code];
    case Codes::kE2M1: return kE2M1Values[code] * (traits.scale == Scale::kE8M0 ? 0.25f : 1.0f);
    case Codes::kE4M3: return E4M3Value(static_cast<uint8_t>(code));
  }
  return 0;
}

// put(k, weight) for the values [begin, end); code(k) is that of value k.
template <typename Code, typename Put>
void ExpandValues(const FormTraits& traits, const Scales& from, int64_t begin, int64_t end,
                  const Code& code, const Put& put) {
  for (int64_t k = begin; k < end;) {
    const int64_t group = traits.group == 0 ? 0 : k / traits.group;
    const int64_t last = traits.group == 0 ? end : std::min(end, (group + 1) * traits.group);
    const int64_t entry = from.Entry(group, from.first_group);
    const int64_t outer =
        from.Entry(traits.outer_group() == 0 ? 0 : k / traits.outer_group(), from.first_outer);
    const float scale = ScaleAt(traits, from.scales, entry, from.outer_scales, outer);
    switch (traits.minimum) {
      case Minimum::kNone:
        for (; k < last; ++k) put(k, ValueOf(traits, code(k)) * scale);
        break;
      case Minimum::kAdded:
      case Minimum::kSubtracted: {
        const float minimum = ScaleAt(traits, from.minima, entry, from.outer_minima, outer);
        const float addend = traits.minimum == Minimum::kAdded ? minimum : -minimum;
        for (; k < last; ++k) put(k, ValueOf(traits, code(k)) * scale + addend);
        break;
      }
      case Minimum::kZeroPoint: {
        const int zero = At<uint8_t>(from.minima, entry);
        for (; k < last; ++k) put(k, static_cast<float>(code(k) - zero) * scale);
      }
    }
  }
}

// Bits of a column's value `i` in a plane of `width` bits a code.
int PlaneCode(const std::byte* plane, int width, int column, int64_t i) {
  // 32 / width pairs a lane; widths are powers of two.
  const auto pair = static_cast<uint64_t>(i) / 2;
  const int width_bits = std::countr_zero(static_cast<unsigned>(width)), pair_bits = 5 - width_bits;
  const auto lane = static_cast<int64_t>((pair >> pair_bits) * kPanelColumns) + column;
  const int shift = LaneShift(width, static_cast<int>(pair & ((1u << pair_bits) - 1)));
  return static_cast<int>(At<uint32_t>(plane, lane * 2 + i % 2) >> shift & ((1u << width) - 1));
}

// out: T, value i of the column at out[at(i)]; zeros beyond the end.
template <typename T, typename Place>
void ExpandColumnTo(const TilePart& part, int column, const Place& at) {
  const FormTraits& traits = TraitsOf(part.form);
  const TileParts parts = PartsOf(part.form, part.begin, part.end);
  const Scales scales{.scales = part.tile + parts.scales,
                      .minima = part.tile + parts.minima,
                      .outer_scales = part.tile + parts.outer_scales,
                      .outer_minima = part.tile + parts.outer_minima,
                      .first_group = parts.first_group,
                      .first_outer = parts.first_outer,
                      .stride = kPanelColumns,
                      .column = column};
  const int64_t first = part.begin + 2 * part.pair,
                end = std::min(part.end, first + 2 * part.num_pairs);
  T* const out = reinterpret_cast<T*>(part.out);
  ExpandValues(
      traits, scales, first, end,
      [&](int64_t k) {
        const int low = PlaneCode(part.tile, traits.low_bits(), column, k - part.begin);
        return traits.high_bits() == 0 ? low
                                       : low | PlaneCode(part.tile + parts.high, traits.high_bits(),
                                                         column, k - part.begin)
                                                   << traits.low_bits();
      },
      [&](int64_t k, float weight) { out[at(k - first)] = tensor::RoundTo<T>(weight); });
  for (int64_t i = end - first; i < 2 * part.num_pairs; ++i) out[at(i)] = T{};
}

template <typename T>
void ExpandAll(const TilePart& part) {
  for (int column = 0; column < kPanelColumns; ++column) {
    ExpandColumnTo<T>(part, column,
                      [column](int64_t i) { return (i / 2 * kPanelColumns + column) * 2 + i % 2; });
  }
}

}  // namespace

void ExpandRow(TileForm form, const StoredRow& row, int64_t begin, int64_t end, float* out) {
  const Scales scales{row.scales, row.minima, row.outer_scales, row.outer_minima};
  ExpandValues(
      TraitsOf(form), scales, begin, end, [&](int64_t k) { return int{row.codes[k]}; },
      [&](int64_t k, float weight) { out[k - begin] = weight; });
}

namespace ref {

void Expand(const TilePart& part) {
  part.dtype == tensor::DType::kF32 ? ExpandAll<float>(part) : ExpandAll<tensor::BF16>(part);
}

void ExpandColumn(const TilePart& part, int column) {
  const auto side_by_side = [](int64_t i) { return i; };
  part.dtype == tensor::DType::kF32 ? ExpandColumnTo<float>(part, column, side_by_side)
                                    : ExpandColumnTo<tensor::BF16>(part, column, side_by_side);
}

}  // namespace ref
}  // namespace forebay::kernels
