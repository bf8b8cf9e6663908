// Any bytes as a safetensors file; what opens is read.
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "weights/formats/dequantize.h"
#include "weights/formats/safetensors.h"

using namespace forebay;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = weights::ParseSafetensors(std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  for (const weights::TensorInfo& tensor : file->tensors) {
    if (!tensor.type->dtype || !weights::CanExpand(*tensor.type->dtype)) continue;
    std::vector<float> values(tensor.shape.elements());
    weights::ExpandElements(*tensor.type->dtype, tensor.data.data(), tensor.shape.elements(),
                            values.data());
    FB_CHECK(tensor.rows() * tensor.columns() == tensor.shape.elements(), "{}",
             tensor.shape.ToString());
  }
  return 0;
}
