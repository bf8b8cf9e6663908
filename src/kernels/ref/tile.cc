// A step of class `amx` for one output, as the documents write it. std::fma is the hardware's,
// whose denormals the caller's FTZ and DAZ flags flush (this file is compiled with FMA
// instructions).
#include <cmath>

#include "kernels/tile_order.h"

namespace forebay::kernels::ref {

using tensor::BF16;
using tensor::ToFloat;

float TileStep(TileOrder order, const BF16* x, const BF16* w, float sum) {
  if (order == TileOrder::kSplit) {
    float even = 0, odd = 0;
    for (int k = 0; k < kTileDepth; k += 2) {
      even = std::fma(ToFloat(x[k]), ToFloat(w[k]), even);
      odd = std::fma(ToFloat(x[k + 1]), ToFloat(w[k + 1]), odd);
    }
    return sum + (even + odd);
  }
  const int first = order == TileOrder::kEvenFirst ? 0 : 1, second = 1 - first;
  for (int k = 0; k < kTileDepth; k += 2) {
    sum = std::fma(ToFloat(x[k + first]), ToFloat(w[k + first]), sum);
    sum = std::fma(ToFloat(x[k + second]), ToFloat(w[k + second]), sum);
  }
  return sum;
}

}  // namespace forebay::kernels::ref
