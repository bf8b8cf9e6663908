// Tiles for tests, from rows of fp32.
#pragma once

#include <vector>

#include "kernels/packed_weight.h"
#include "tensor/bf16.h"

namespace forebay::kernels::testing {

// PackTile of the rows, rounded to `dtype`.
inline void PackRounded(tensor::DType dtype, int64_t k_leaf, const float* const rows[kPanelColumns],
                        std::byte* tile) {
  if (dtype == tensor::DType::kF32) return PackTile(k_leaf, rows, tile);
  std::vector<tensor::BF16> rounded(static_cast<size_t>(k_leaf) * kPanelColumns);
  const tensor::BF16* columns[kPanelColumns] = {};
  for (int c = 0; c < kPanelColumns; ++c) {
    if (rows[c] == nullptr) continue;
    tensor::RoundToBF16(rows[c], k_leaf, &rounded[static_cast<size_t>(c * k_leaf)]);
    columns[c] = &rounded[static_cast<size_t>(c * k_leaf)];
  }
  PackTile(k_leaf, columns, tile);
}

}  // namespace forebay::kernels::testing
