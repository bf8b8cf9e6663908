// Rows of random codes and scales, for tests of stored tiles.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "kernels/packed_weight.h"

namespace forebay::kernels::testing {

// Rows of `k` values of a form, of any codes; scales lie between 2^-8 and 2 in size.
class RandomRows {
 public:
  RandomRows(TileForm form, int64_t k, int rows, unsigned seed) : rng_(seed), rows_(rows) {
    const FormTraits& traits = TraitsOf(form);
    const StoredRowSizes sizes = SizesOf(form, k);
    for (Row& row : rows_) {
      for (int64_t i = 0; i < k; ++i) row.codes.push_back(Code(traits));
      for (int64_t i = 0; i < sizes.groups; ++i) {
        AddScale(traits.scale, &row.scales);
        if (traits.minimum == Minimum::kZeroPoint) {
          row.minima.push_back(static_cast<std::byte>(rng_() % 16));
        } else if (traits.minimum != Minimum::kNone) {
          AddScale(traits.scale, &row.minima);
        }
      }
      for (int64_t i = 0; i < sizes.outer; ++i) {
        if (traits.outer_scale_bytes() == 2) AddHalf(&row.outer_scales);
        if (traits.outer_scale_bytes() == 4) AddFloat(&row.outer_scales);
        if (traits.outer_minimum_bytes() > 0) AddHalf(&row.outer_minima);
      }
      row.view = {row.codes.data(), row.scales.data(), row.minima.data(), row.outer_scales.data(),
                  row.outer_minima.data()};
    }
  }

  const StoredRow& operator[](size_t row) const { return rows_[row].view; }

 private:
  struct Row {
    std::vector<uint8_t> codes;
    std::vector<std::byte> scales, minima, outer_scales, outer_minima;
    StoredRow view;
  };

  uint8_t Code(const FormTraits& traits) {
    const auto code = static_cast<uint8_t>(rng_() & ((1u << traits.bits) - 1));
    return traits.codes == Codes::kE4M3 && (code & 0x7F) == 0x7F ? 0 : code;
  }
  template <typename T>
  static void Add(T value, std::vector<std::byte>* to) {
    to->resize(to->size() + sizeof(T));
    std::memcpy(to->data() + to->size() - sizeof(T), &value, sizeof(T));
  }
  void AddHalf(std::vector<std::byte>* to) {
    Add(static_cast<uint16_t>((rng_() & 0x83FF) | (7 + rng_() % 9) << 10), to);
  }
  void AddFloat(std::vector<std::byte>* to) {
    Add(static_cast<uint32_t>((rng_() & 0x807FFFFF) | (119 + rng_() % 9) << 23), to);
  }
  void AddScale(Scale scale, std::vector<std::byte>* to) {
    switch (scale) {
      case Scale::kF16: return AddHalf(to);
      case Scale::kF32: return AddFloat(to);
      case Scale::kE8M0: return Add(static_cast<uint8_t>(119 + rng_() % 9), to);
      case Scale::kE4M3: return Add(static_cast<uint8_t>(rng_() % 0x7F), to);
      default: return Add(static_cast<uint8_t>(rng_()), to);
    }
  }

  std::mt19937 rng_;
  std::vector<Row> rows_;
};

}  // namespace forebay::kernels::testing
