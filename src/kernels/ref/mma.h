// Steps of classes `mma_*`, in plain loops over columns that a compiler turns into vectors.
#pragma once

#include "kernels/mma_order.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {

// Goes on with the chains of `columns` outputs: sums[c] += x[k] w[k][c] over k in [first, last), in
// steps at multiples of the order's depth; what a step lacks of these is +0, whatever x and w hold
// there. w: [.. / 2][columns][2], pairs along K, of a tile, of keys or of values.
void AddMmaSteps(MmaOrder order, const tensor::BF16* x, int first, int last, const tensor::BF16* w,
                 int columns, float* sums);

}  // namespace forebay::kernels::ref
