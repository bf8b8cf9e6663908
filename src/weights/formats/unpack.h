// GGUF's quantised blocks as codes and scales (ggml-common.h and ggml-quants.c say how they lie).
#pragma once

#include <cstddef>

#include "weights/stored_row.h"

namespace forebay::weights {

// `count` values of whole blocks at `source` into `row`, which is resized. REQUIRES: a form of a
// GGUF type.
void UnpackBlocks(kernels::TileForm form, const std::byte* source, int64_t count,
                  StoredRowMemory* row);

// The same values as fp32, as gguf.quants.dequantize makes them.
void ExpandBlocks(kernels::TileForm form, const std::byte* source, int64_t count, float* out);

}  // namespace forebay::weights
