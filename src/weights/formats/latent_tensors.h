// The matrix that makes keys and values of a latent (kv_b_proj), which GGUF files hold in two:
//
//   X.self_attn.k_b_proj.weight [heads, rank, key dim]    (attn_k_b), transposed
//   X.self_attn.v_b_proj.weight [heads, value dim, rank]  (attn_v_b)
//     -> X.self_attn.kv_b_proj.weight [heads * (key dim + value dim), rank], by head its keys'
//     rows, then its values'
#pragma once

#include <vector>

#include "weights/formats/tensor_info.h"

namespace forebay::weights {

// Borrows its data from the mapped files.
struct LatentParts {
  const StoredType* key_type = nullptr;
  std::span<const std::byte> keys, values;
  int64_t heads = 0, rank = 0, key_dim = 0, value_dim = 0;
};

// Joins the two of a layer. Errors do not name the file.
base::Status JoinLatent(std::vector<TensorInfo>* tensors);

// Rows [begin, end) of a joined tensor, as fp32 [end - begin, rank].
void ExpandLatent(const TensorInfo& tensor, int64_t begin, int64_t end, float* out);

}  // namespace forebay::weights
