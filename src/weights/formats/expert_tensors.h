// Tensors that a file holds together, as one tensor each: the experts of a layer in a stack, the
// quants and the scales of a matrix. What reads weights so knows one form: a matrix an expert.
//
//   X.experts.gate_proj.weight [experts, out, in]      (GGUF's ffn_gate_exps; up_proj, down_proj
//   too) X.experts.gate_up_proj     [experts, in, 2 out], gate first; X.experts.down_proj [experts,
//   out,
//                              in] beside it: both transposed (Llama 4)
//   X.experts.gate_up_proj     [experts, 2 out, in]; X.experts.down_proj [experts, in, out]
//   X.experts.gate_up_proj     [experts, in, 2 out], gate and up in turn, X.experts.down_proj
//                              [experts, out, in], and with both X.experts.gate_up_proj_bias
//                              [experts, 2 out] and down_proj_bias [experts, in] (gpt-oss)
//     -> X.experts.N.gate_proj.weight (and .bias), up_proj, down_proj, rows as Hugging Face has
//     them
//   X.weight F8_E4M3 [n, k] with X.weight_scale_inv F32 [ceil(n / 128), ceil(k / 128)]
//     -> X.weight, whose values are quant x scale
#pragma once

#include <vector>

#include "weights/formats/tensor_info.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kScaleWithoutWeight{"tensor_scale_without_weight"};
inline constexpr int64_t kScaleBlock = 128;

// Cuts the stacks. Errors do not name the file.
base::Status SplitExpertStacks(std::vector<TensorInfo>* tensors);

// Gives quants their scales. Errors do not name the file.
base::Status AttachScales(std::vector<TensorInfo>* tensors);

// Rows [begin, end) of a tensor with scales, as fp32: each quant x scale rounded once.
void ExpandScaled(const TensorInfo& tensor, int64_t begin, int64_t end, float* out);

// Rows [begin, end) of a tensor that is stored transposed.
void ExpandTransposed(const TensorInfo& tensor, int64_t begin, int64_t end, float* out);

}  // namespace forebay::weights
