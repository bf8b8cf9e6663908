// Matrices that folders hold as several tensors, codes, scales and zero points, as one tensor each.
//
//   compressed-tensors  X.weight_packed I32 [n, k / 8], codes from the lowest bits on, with
//                       X.weight_scale [n, groups], X.weight_zero_point I32 [n / 8, groups]
//   nvfp4               X.weight_packed U8 [n, k / 2] with X.weight_scale F8_E4M3 [n, k / 16] and
//                       X.weight_global_scale F32, by which it is divided; or (modelopt) X.weight
//                       and X.weight_scale_2, by which it is multiplied
//   AWQ                 X.qweight I32 [k, n / 8] in the order 0 2 4 6 1 3 5 7, X.scales
//                       [groups, n], X.qzeros I32 [groups, n / 8] in the same order
//   GPTQ                X.qweight I32 [k / 8, n], X.scales [groups, n], X.qzeros I32
//                       [groups, n / 8] of zero points less 1, X.g_idx
//   fp8, int8           X.weight F8_E4M3 or I8 [n, k] with X.weight_scale of a row, of a block of
//                       128 x 128 (also X.weight_scale_inv), or of the tensor
//   mxfp4               X_blocks U8 [experts, n, k / 32, 16] with X_scales U8 [experts, n, k / 32];
//                       of gate_up_proj rows of gate and up alternate
//     -> X.weight [n, k]; X.experts.N.gate_proj.weight and so on
#pragma once

#include <vector>

#include "weights/formats/tensor_info.h"
#include "weights/stored_row.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kQuantisedTensors{"quantised_tensors_invalid"};
inline constexpr base::ErrorCode kScaleWithoutWeight{"tensor_scale_without_weight"};

// Where codes, scales and zero points of a matrix lie. Borrows the mapped files.
struct QuantParts {
  enum class Packing : uint8_t {
    kBytes,         // a code a byte
    kNibbles,       // the even element in the lower half
    kEightColumns,  // AWQ
    kEightRows,     // GPTQ
  };
  Packing packing = Packing::kBytes;
  kernels::TileForm form = kernels::TileForm::kExpanded;
  std::span<const std::byte> codes;
  int64_t code_stride = 0;  // bytes from a row of the tensor of codes to the next
  // The scale of (row, group) is entry row / scale_rows x scale_row_stride + group x
  // scale_group_stride.
  std::span<const std::byte> scales;
  tensor::DType scale_type = tensor::DType::kF32;  // kU8: as the form has it
  int64_t scale_rows = 1, scale_row_stride = 0, scale_group_stride = 0;
  // Zero points of 4 bits, eight in 32 bits; empty: 8.
  std::span<const std::byte> zeros;
  int64_t zero_row_stride = 0, zero_group_stride = 0;  // of row / 8 and group, in 32 bits
  bool awq_order = false;
  int zero_add = 0;
  std::span<const std::byte> outer;  // an fp32
  bool outer_divides = false;
  // Row r of the matrix is row first_row + r x row_step of the tensors.
  int64_t first_row = 0, row_step = 1;
};

// Joins them, and takes what it joined off the list. Errors name the tensor, not the file:
// kQuantisedTensors, kTensorShape, kScaleWithoutWeight.
base::Status JoinQuantised(std::vector<TensorInfo>* tensors);

// Rows [begin, end) of such a matrix into out[end - begin].
void ReadParts(const TensorInfo& tensor, int64_t begin, int64_t end, StoredRowMemory* out);

}  // namespace forebay::weights
