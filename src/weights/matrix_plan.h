// Which rows of which tensors become which panel of a packed weight: the declared table that drives memory planning and
// loading. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/part.h"
#include "kernels/packed_weight.h"

namespace forebay::weights {

// `width` rows of a tensor from `row` on, placed in a panel from column `at` on.
struct PanelPiece {
  int32_t tensor;  // index into MatrixPlan::tensors
  int64_t row;
  int32_t width;
  int32_t at;
};

struct PanelPlan {
  kernels::PanelColumns columns;
  std::vector<PanelPiece> pieces;
};

struct MatrixPlan {
  std::string label;                 // "layers.3.qkv"
  tensor::DType dtype = tensor::DType::kBF16;
  int64_t k = 0, n = 0;
  kernels::LeafBorders leaves;
  int64_t tensor_k = 0, first_k = 0; // columns of the tensors, and which of them is the first input here
  std::vector<std::string> tensors;  // each [.., tensor_k]
  std::vector<int64_t> tensor_rows;  // rows expected of each
  std::vector<std::string> biases;   // parallel to tensors; "" where there is none; empty: no bias at all
  std::vector<PanelPlan> panels;

  // The weight's geometry without memory.
  kernels::PackedWeight Geometry() const;
  // Data, and control memory beside it.
  uint64_t TileBytes() const { return static_cast<uint64_t>(Geometry().bytes()); }
  // Tile pointers, panel table and bias.
  uint64_t TableBytes() const;
  // Only these leaves of what is planned so far stay: a rank's share of the inputs.
  void KeepLeaves(const base::Part& kept);
};

// Part of a tensor's rows: a rank's share of the outputs. A number is all of them.
struct TensorRows {
  TensorRows(int64_t all) : total(all), part{0, all} {}
  TensorRows(int64_t total, const base::Part& part) : total(total), part(part) {}
  int64_t total;
  base::Part part;
};

// y = x W^T with W one tensor [rows, k].
MatrixPlan PlanMatrix(std::string label, tensor::DType dtype, std::string name, std::string bias, const TensorRows& rows,
                      int64_t k, const kernels::LeafBorders& leaves);

// q, k and v in one weight, packed head by head: no panel crosses a head.
struct QkvNames {
  std::string q, k, v, q_bias, k_bias, v_bias;
};
struct QkvHeads {
  int64_t total = 0, total_kv = 0;    // of the tensors
  std::vector<int32_t> query, kv;     // the logical heads that are packed, in the order of their slots
  int64_t head_dim = 0;
};
MatrixPlan PlanQkv(std::string label, tensor::DType dtype, const QkvNames& names, const QkvHeads& heads, int64_t k);

// gate and up interleaved, 32 columns of each in a panel.
MatrixPlan PlanGateUp(std::string label, tensor::DType dtype, std::string gate, std::string up, std::string gate_bias,
                      std::string up_bias, const TensorRows& rows, int64_t k);

}  // namespace forebay::weights
