// How the cost model calls the types that kernels compute with.
#pragma once

#include "cost/operation.h"
#include "tensor/dtype.h"

namespace forebay::kernels {

// REQUIRES: dtype is kBF16 or kF32.
constexpr cost::NumberFormat NumberFormatOf(tensor::DType dtype) {
  return dtype == tensor::DType::kF32 ? cost::NumberFormat::kF32 : cost::NumberFormat::kBF16;
}

}  // namespace forebay::kernels
