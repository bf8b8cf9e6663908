#include "tensor/dtype.h"

namespace forebay::tensor {

std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "F32";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kI64: return "I64";
    case DType::kI32: return "I32";
    case DType::kU64: return "U64";
    case DType::kU8: return "U8";
    case DType::kQ8_0: return "Q8_0";
    case DType::kQ4_0: return "Q4_0";
    case DType::kQ4_1: return "Q4_1";
  }
  return "?";
}

}  // namespace forebay::tensor
