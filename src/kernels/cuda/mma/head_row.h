// A head's part of a row of outputs of attention, in either form of rows.
#pragma once

#include "kernels/cuda/hopper.h"
#include "kernels/cuda/mma/arithmetic.h"
#include "kernels/packed_form.h"

namespace forebay::kernels::cuda {

// REQUIRES: heads are multiples of 64 elements.
struct HeadRow {
  std::byte* at;
  int from_64_to_64, swizzle;  // bytes

  // Nothing of it is worked out before: registers are short in the loops in front of it.
  FB_DEVICE HeadRow(std::byte* out, RowForm form, int row, int head, int head_dim, int row_heads) {
    row = gpu::Here(row);
    at = out + (InRows(form, row, head * head_dim, int64_t{row_heads} * head_dim) & ~int64_t{127});
    from_64_to_64 = form == RowForm::kRows ? 128 : kChunkBytes;
    swizzle = form == RowForm::kRows ? 0 : row % 8 * 16;
  }

  // Two neighbours, of which `column` is the first.
  FB_DEVICE void Store(int column, float low, float high) const {
    *reinterpret_cast<uint32_t*>(at + column / 64 * from_64_to_64 + ((column % 64 * 2) ^ swizzle)) =
        RoundedPair(low, high);
  }
};

}  // namespace forebay::kernels::cuda
