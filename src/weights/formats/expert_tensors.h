// The experts of a layer that a file holds in a stack, as tensors of their own. What reads weights
// so knows one form: a matrix an expert.
//
//   X.experts.gate_proj.weight [experts, out, in]      (GGUF's ffn_gate_exps; up_proj, down_proj
//                              too), with X.experts.gate_proj.bias [experts, out] where there is
//                              one
//   X.experts.gate_up_proj     [experts, in, 2 out], gate first; X.experts.down_proj [experts,
//   out,
//                              in] beside it: both transposed (Llama 4)
//   X.experts.gate_up_proj     [experts, 2 out, in]; X.experts.down_proj [experts, in, out]
//   X.experts.gate_up_proj     [experts, in, 2 out], gate and up in turn, X.experts.down_proj
//                              [experts, out, in], and with both X.experts.gate_up_proj_bias
//                              [experts, 2 out] and down_proj_bias [experts, in] (gpt-oss)
//   X.block_sparse_moe.input_linear.weight [experts, 2 out, in], output_linear.weight [experts, in,
//                              out] (Granite 4): with X.block_sparse_moe in place of X
//     -> X.experts.N.gate_proj.weight (and .bias), up_proj, down_proj, rows as Hugging Face has
//     them
#pragma once

#include <vector>

#include "weights/formats/tensor_info.h"

namespace forebay::weights {

// Cuts the stacks. Errors do not name the file.
base::Status SplitExpertStacks(std::vector<TensorInfo>* tensors);

// Rows [begin, end) of a tensor that is stored transposed.
void ExpandTransposed(const TensorInfo& tensor, int64_t begin, int64_t end, float* out);

}  // namespace forebay::weights
