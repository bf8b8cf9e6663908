#include "weights/matrix_plan.h"

#include <algorithm>

namespace forebay::weights {
namespace {

using kernels::kPanelColumns;

// Adds panels for `rows` rows of tensors[tensor] from `row` on; outputs count from `column` on.
void AddPanels(MatrixPlan* plan, int32_t tensor, int64_t row, int64_t rows, int64_t column) {
  for (int64_t at = 0; at < rows; at += kPanelColumns) {
    const auto width = static_cast<int32_t>(std::min<int64_t>(kPanelColumns, rows - at));
    plan->panels.push_back({{static_cast<int32_t>(column + at), width}, {{tensor, row + at, width, 0}}});
  }
}

bool AnyBias(const std::vector<std::string>& biases) {
  return std::any_of(biases.begin(), biases.end(), [](const std::string& name) { return !name.empty(); });
}

}  // namespace

kernels::PackedWeight MatrixPlan::Geometry() const {
  kernels::PackedWeight weight;
  weight.dtype = dtype;
  weight.k = static_cast<int32_t>(k);
  weight.n = static_cast<int32_t>(n);
  weight.num_panels = static_cast<int32_t>(panels.size());
  weight.leaves = leaves;
  return weight;
}

uint64_t MatrixPlan::TableBytes() const {
  const uint64_t tiles = static_cast<uint64_t>(leaves.num_leaves) * panels.size();
  const uint64_t bias = biases.empty() ? 0 : panels.size() * kPanelColumns * sizeof(float);
  return base::RoundUp(tiles * sizeof(void*), 64) + base::RoundUp(panels.size() * sizeof(kernels::PanelColumns), 64) +
         base::RoundUp(bias, 64);
}

void MatrixPlan::KeepLeaves(const base::Part& kept) {
  first_k += leaves.begin[kept.begin];
  leaves = leaves.Slice(static_cast<int>(kept.begin), static_cast<int>(kept.end));
  k = leaves.begin[leaves.num_leaves];
}

MatrixPlan PlanMatrix(std::string label, tensor::DType dtype, std::string name, std::string bias, const TensorRows& rows,
                      int64_t k, const kernels::LeafBorders& leaves) {
  MatrixPlan plan{.label = std::move(label), .dtype = dtype, .k = k, .n = rows.part.size(), .leaves = leaves, .tensor_k = k};
  plan.tensors = {std::move(name)};
  plan.tensor_rows = {rows.total};
  if (!bias.empty()) plan.biases = {std::move(bias)};
  AddPanels(&plan, 0, rows.part.begin, plan.n, 0);
  return plan;
}

MatrixPlan PlanQkv(std::string label, tensor::DType dtype, const QkvNames& names, const QkvHeads& heads, int64_t k) {
  MatrixPlan plan{.label = std::move(label), .dtype = dtype, .k = k, .leaves = kernels::LeafBorders::Single(k), .tensor_k = k};
  plan.tensors = {names.q, names.k, names.v};
  plan.tensor_rows = {heads.total * heads.head_dim, heads.total_kv * heads.head_dim, heads.total_kv * heads.head_dim};
  plan.biases = {names.q_bias, names.k_bias, names.v_bias};
  if (!AnyBias(plan.biases)) plan.biases.clear();
  const std::vector<int32_t>* heads_of[] = {&heads.query, &heads.kv, &heads.kv};
  for (int32_t tensor = 0; tensor < 3; ++tensor) {
    for (const int32_t head : *heads_of[tensor]) {
      AddPanels(&plan, tensor, head * heads.head_dim, heads.head_dim, plan.n);
      plan.n += heads.head_dim;
    }
  }
  return plan;
}

MatrixPlan PlanGateUp(std::string label, tensor::DType dtype, std::string gate, std::string up, std::string gate_bias,
                      std::string up_bias, const TensorRows& rows, int64_t k) {
  MatrixPlan plan{.label = std::move(label), .dtype = dtype, .k = k, .n = rows.part.size(),
                  .leaves = kernels::LeafBorders::Single(k), .tensor_k = k};
  plan.tensors = {std::move(gate), std::move(up)};
  plan.tensor_rows = {rows.total, rows.total};
  plan.biases = {std::move(gate_bias), std::move(up_bias)};
  if (!AnyBias(plan.biases)) plan.biases.clear();
  constexpr int kHalf = kPanelColumns / 2;
  for (int64_t row = rows.part.begin; row < rows.part.end; row += kHalf) {
    const auto width = static_cast<int32_t>(std::min<int64_t>(kHalf, rows.part.end - row));
    const auto column = static_cast<int32_t>(row - rows.part.begin);
    plan.panels.push_back({{column, width}, {{0, row, width, 0}, {1, row, width, kHalf}}});
  }
  return plan;
}

}  // namespace forebay::weights
