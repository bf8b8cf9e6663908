// A step of class `amx` for columns that a compiler turns into vectors.
#pragma once

#include "kernels/tile_order.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {

// Adds one step to the sums of `columns` outputs, to each as TileStep. x: 32 elements; w:
// [16][columns][2], pairs along K. REQUIRES: denormals are flushed.
void AddTileStep(TileOrder order, const tensor::BF16* x, const tensor::BF16* w, int columns,
                 float* sums);
// As AddMmaSteps: the elements [first, last) of K, in steps at multiples of 32; what a step lacks
// of these is +0. REQUIRES: also columns <= kMaxValueDim.
void AddTileSteps(TileOrder order, const tensor::BF16* x, int first, int last,
                  const tensor::BF16* w, int columns, float* sums);

}  // namespace forebay::kernels::ref
