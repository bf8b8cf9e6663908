#include "model/files/head_tie.h"

#include <algorithm>
#include <vector>

namespace forebay::model {

base::Result<bool> UntieOtherHead(const weights::TensorReader& reader, ModelConfig* config) {
  if (!config->tie_word_embeddings || !reader.Has(kHeadTensor) || !reader.Has(kEmbeddingTensor))
    return false;
  FB_ASSIGN_OR_RETURN(const tensor::Shape shape, reader.ShapeOf(kEmbeddingTensor));
  FB_ASSIGN_OR_RETURN(const tensor::Shape head_shape, reader.ShapeOf(kHeadTensor));
  bool equal = head_shape == shape && shape.rank() == 2;
  constexpr int64_t kRows = 256;  // at once
  std::vector<float> one, other;
  for (int64_t row = 0; equal && row < shape[0]; row += kRows) {
    const int64_t end = std::min(row + kRows, shape[0]);
    one.resize(static_cast<size_t>((end - row) * shape[1]));
    other.resize(one.size());
    FB_RETURN_IF_ERROR(reader.ReadRows(kEmbeddingTensor, row, end, one.data()));
    FB_RETURN_IF_ERROR(reader.ReadRows(kHeadTensor, row, end, other.data()));
    equal = one == other;
  }
  reader.DoneWith(kHeadTensor);
  config->tie_word_embeddings = equal;
  return !equal;
}

}  // namespace forebay::model
