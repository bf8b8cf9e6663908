// A row of a tensor as codes and scales (kernels/tile_form.h), in memory that is used again.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tile_form.h"

namespace forebay::weights {

struct StoredRowMemory {
  std::vector<uint8_t> codes;
  std::vector<std::byte> scales, minima, outer_scales, outer_minima;

  // Room for `k` values of a form. REQUIRES: not kExpanded.
  void Resize(kernels::TileForm form, int64_t k);
  kernels::StoredRow view() const {
    return {codes.data(), scales.data(), minima.data(), outer_scales.data(), outer_minima.data()};
  }
};

// Forms that QuantiseRow makes of any values.
constexpr bool CanQuantise(kernels::TileForm form) {
  return form == kernels::TileForm::kW8A8 || form == kernels::TileForm::kQ4_0;
}

// A row in such a form. kW8A8: codes to the nearest of 127 steps of the greatest value, ties to
// even. kQ4_0, as ggml has it: a step is a group's first value of greatest size by -8, and codes
// are values by it, plus 8, to nearest, ties up, at most 15; then the step is rounded to fp16.
// FindBadGroup tells whether that is finite.
void QuantiseRow(kernels::TileForm form, const float* values, int64_t k, StoredRowMemory* out);

// The first group of a row of `k` values whose scale or minimum makes weights that are no finite
// fp32, or -1. Of fp8 also the group of a code that is NaN.
int64_t FindBadGroup(kernels::TileForm form, const StoredRowMemory& row, int64_t k);

}  // namespace forebay::weights
