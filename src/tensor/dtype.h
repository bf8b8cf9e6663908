// Element types: of stored weights, and of computation.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/units.h"

namespace forebay::tensor {

enum class DType : uint8_t { kF32, kF16, kBF16, kI64, kI32, kU64, kU8, kQ8_0, kQ4_0, kQ4_1 };

// The format's own spelling: "F32", "BF16", "Q4_1", ...
std::string_view Name(DType dtype);

// Quantised types store blocks of elements; for the others a block is one element.
struct BlockFormat {
  uint32_t elements;
  uint32_t bytes;
};

constexpr BlockFormat FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF32: return {1, 4};
    case DType::kF16: return {1, 2};
    case DType::kBF16: return {1, 2};
    case DType::kI64: return {1, 8};
    case DType::kI32: return {1, 4};
    case DType::kU64: return {1, 8};
    case DType::kU8: return {1, 1};
    case DType::kQ8_0: return {32, 34};  // fp16 scale, 32 x int8
    case DType::kQ4_0: return {32, 18};  // fp16 scale, 32 x 4 bits
    case DType::kQ4_1: return {32, 20};  // fp16 scale, fp16 minimum, 32 x 4 bits
  }
  return {1, 0};
}

constexpr bool IsQuantized(DType dtype) { return FormatOf(dtype).elements > 1; }

// Bytes of one element. REQUIRES: not quantised.
inline uint64_t SizeOf(DType dtype) {
  FB_CHECK(!IsQuantized(dtype), "{} has no element size", Name(dtype));
  return FormatOf(dtype).bytes;
}

// Bytes of `elements` elements. REQUIRES: whole blocks.
inline uint64_t BytesOf(DType dtype, uint64_t elements) {
  const BlockFormat format = FormatOf(dtype);
  FB_CHECK(elements % format.elements == 0, "{} elements are no whole blocks of {}", elements,
           Name(dtype));
  return elements / format.elements * format.bytes;
}

}  // namespace forebay::tensor
