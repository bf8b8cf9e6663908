// Any bytes as a GGUF file: the reader, the model's configuration, and the tensors of what opens.
#include <cstdint>
#include <vector>

#include "model/files/config_reader.h"
#include "weights/formats/dequantize.h"

using namespace forebay;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = weights::GgufFile::Parse(std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  (void)model::ReadGgufConfig(*file, "input");
  (void)file->GetStrings("tokenizer.ggml.tokens");
  (void)file->GetFloats("tokenizer.ggml.scores");
  (void)file->GetInts("tokenizer.ggml.token_type");
  for (const weights::TensorInfo& tensor : file->tensors()) {
    if (!tensor.type->dtype || !weights::CanExpand(*tensor.type->dtype)) continue;
    std::vector<float> values(tensor.shape.elements());
    weights::ExpandElements(*tensor.type->dtype, tensor.data.data(), tensor.shape.elements(),
                            values.data());
  }
  return 0;
}
