// Whether a model's head is its embedding: tie_word_embeddings says so, and the tensors decide.
#pragma once

#include "model/config.h"
#include "weights/tensor_reader.h"

namespace forebay::model {

inline constexpr char kEmbeddingTensor[] = "model.embed_tokens.weight";
inline constexpr char kHeadTensor[] = "lm_head.weight";

// Unties a configuration beside whose embedding lies a head with other values, as Hugging Face's
// transformers does; true if it did. Reads both tensors. Errors are those of reading them.
base::Result<bool> UntieOtherHead(const weights::TensorReader& reader, ModelConfig* config);

}  // namespace forebay::model
