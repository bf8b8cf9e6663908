// Stored elements to fp32, exactly as the format defines them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/bf16.h"
#include "tensor/dtype.h"

namespace forebay::weights {

// Whether ExpandElements reads that type.
bool CanExpand(tensor::DType dtype);

// `count` elements from `source` (any alignment) into `out`. F32, F16 and BF16 are exact. Q8_0 and
// Q4_0 are scale x quant, Q4_1 is scale x quant + minimum, each operation rounded to fp32, as
// gguf.quants.dequantize does. REQUIRES: CanExpand(dtype), `count` is whole blocks.
void ExpandElements(tensor::DType dtype, const std::byte* source, int64_t count, float* out);

// The index of the first NaN or infinity, or -1.
int64_t FindNotFinite(const float* values, int64_t count);

// What tensor::ToBF16 makes of bf16 values: denormals become zeros of the same sign. Returns the
// same as FindNotFinite.
int64_t FlushDenormals(std::span<tensor::BF16> values);

}  // namespace forebay::weights
