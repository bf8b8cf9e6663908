// The map from rows of tensors to panels of a packed weight: the declared table that drives memory
// planning and loading. Pure.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/part.h"
#include "kernels/packed_weight.h"

namespace forebay::weights {

// `width` rows of a tensor from `row` on, placed in a panel from column `at` on. For a transposed
// matrix: `width` columns from `column` on, read from K row `row` on.
struct PanelPiece {
  int32_t tensor;  // index into MatrixPlan::tensors
  int64_t row;
  int32_t width;
  int32_t at;
  int64_t column = 0;

  friend bool operator==(const PanelPiece&, const PanelPiece&) = default;
};

struct PanelPlan {
  kernels::PanelColumns columns;
  int32_t first_piece = 0, num_pieces = 0;  // of the table's

  friend bool operator==(const PanelPlan& a, const PanelPlan& b) {
    return a.columns.column == b.columns.column && a.columns.width == b.columns.width &&
           a.first_piece == b.first_piece && a.num_pieces == b.num_pieces;
  }
};

// A matrix' panels, in order, and the pieces of all of them in one array.
struct PanelTable {
  std::vector<PanelPlan> panels;
  std::vector<PanelPiece> pieces;

  void Add(const kernels::PanelColumns& columns, std::initializer_list<PanelPiece> of_panel);
  friend bool operator==(const PanelTable&, const PanelTable&) = default;
};

// A matrix, or a matrix of each expert of a layer, which are all alike.
struct MatrixPlan {
  std::string label;  // "layers.3.qkv"
  tensor::DType dtype = tensor::DType::kBF16;
  std::optional<cost::NumberFormat> stored;  // PackedWeight::stored
  int64_t k = 0, n = 0;
  kernels::LeafBorders leaves;
  // columns of the tensors, and which of them is the first input here
  int64_t tensor_k = 0, first_k = 0;
  bool transposed = false;           // inputs are rows of the tensor, outputs its columns
  std::vector<std::string> tensors;  // each [.., tensor_k]; "{}" stands for an expert's number
  std::vector<int64_t> tensor_rows;  // rows expected of each
  // parallel to tensors, and likewise with "{}"; "" where there is none; empty: no bias at all
  std::vector<std::string> biases;
  std::shared_ptr<const PanelTable> table;  // layers that are cut alike have one
  // How tiles are stored: all alike, or [panels] where these differ.
  kernels::TileForm form = kernels::TileForm::kExpanded;
  std::vector<kernels::TileForm> forms;
  kernels::PackedForm packed = kernels::PackedForm::kPairs;  // of expanded tiles
  bool stays_expanded = false;  // kernels read its values otherwise than linear layers do
  int32_t num_experts = 0;      // 0: it is one matrix
  int32_t first_expert = 0;     // among the layer's

  const std::vector<PanelPlan>& panels() const { return table->panels; }
  std::span<const PanelPiece> PiecesOf(size_t panel) const {
    return std::span(table->pieces)
        .subspan(static_cast<size_t>(panels()[panel].first_piece),
                 static_cast<size_t>(panels()[panel].num_pieces));
  }
  // A panel takes the form of its tensors, by their number; where these differ it is expanded, and
  // so are all panels of experts that are not alike. REQUIRES: stays_expanded is false.
  void SetForms(const std::vector<kernels::TileForm>& of_tensors);
  // The weight's geometry without memory, which borrows `forms`; of experts one's.
  kernels::PackedWeight Geometry() const;
  // How many matrices it is.
  int32_t count() const { return num_experts > 0 ? num_experts : 1; }
  // `expert`: among the matrix' own.
  std::string TensorName(size_t tensor, int32_t expert) const {
    return NameOf(tensors[tensor], expert);
  }
  std::string BiasName(size_t bias, int32_t expert) const { return NameOf(biases[bias], expert); }
  // `name` with the expert's number in place of "{}", where the matrix is of experts.
  std::string NameOf(std::string name, int32_t expert) const;
  // Data, and control memory beside it.
  uint64_t TileBytes() const { return static_cast<uint64_t>(Geometry().bytes() * count()); }
  // Where tiles lie, panel table and bias.
  uint64_t TableBytes() const;
  // Whether it has the other's table, and tiles as large as the other's.
  bool HasTilesOf(const MatrixPlan& other) const;
  // Keeps only these leaves of the plan so far: a rank's share of the inputs.
  void KeepLeaves(const base::Part& kept);
};

// The unit of placement: a tile of a matrix, or all tiles of an expert's matrix.
struct RunPlace {
  int leaf;
  int32_t panel;
  int32_t expert;
  uint64_t bytes;
};

// Visits the runs of a matrix in stored order: leaf by leaf, or expert by
// expert.
template <typename Visit>
void ForEachRun(const kernels::PackedWeight& geometry, int32_t num_experts, Visit visit) {
  for (int32_t expert = 0; expert < num_experts; ++expert)
    visit(RunPlace{0, 0, expert, static_cast<uint64_t>(geometry.bytes())});
  if (num_experts > 0) return;
  for (int leaf = 0; leaf < geometry.leaves.num_leaves; ++leaf) {
    for (int32_t panel = 0; panel < geometry.num_panels; ++panel)
      visit(RunPlace{leaf, panel, 0, static_cast<uint64_t>(geometry.TileBytes(leaf, panel))});
  }
}

// Part of a tensor's rows: a rank's share of the outputs. A number is all of them.
struct TensorRows {
  TensorRows(int64_t all) : total(all), part{0, all} {}
  TensorRows(int64_t total, const base::Part& part) : total(total), part(part) {}
  int64_t total;
  base::Part part;
};

// y = x W^T with W one tensor [rows, k].
MatrixPlan PlanMatrix(std::string label, tensor::DType dtype, std::string name, std::string bias,
                      const TensorRows& rows, int64_t k, const kernels::LeafBorders& leaves);

// How the stored elements of a head are packed: kernels turn element i with i + head_dim / 2.
// Stored are first the `rotary_dim` elements that rope turns, halves or (interleaved) neighbouring
// pairs, then those it leaves alone.
struct HeadOrder {
  int64_t head_dim = 0;  // 0: as stored
  int64_t rotary_dim = 0;
  bool interleaved = false;

  // Which stored element of its head is packed as element `packed`.
  int64_t Stored(int64_t packed) const {
    const int64_t half = head_dim / 2, turned = rotary_dim / 2;
    const int64_t pair = packed % half, second = packed / half;
    if (pair >= turned) return rotary_dim + pair - turned + second * (half - turned);
    return interleaved ? 2 * pair + second : pair + second * turned;
  }
};

// q, k and v in one weight, packed head by head. Equal names of q and k:
// the matrices lie in one tensor, in this order; of k and v: both are made of that tensor's rows.
// Without a name of k there is q alone. REQUIRES: no KV heads then.
struct QkvNames {
  std::string q, k, v, q_bias, k_bias, v_bias;
};
struct QkvHeads {
  int64_t total = 0, total_kv = 0;  // heads of the tensors
  // the logical heads that are packed, in the order of their slots
  std::vector<int32_t> query, kv;
  HeadOrder order;  // of q's and k's rows
  // rows of a query head in q's tensor, of which the first are its query; 0: no more than these
  int64_t query_rows = 0;
  // Heads of q (k, v) lie in panels without gaps. Otherwise no panel crosses a head, so that any
  // heads can be taken.
  bool share_panels = false;
};
MatrixPlan PlanQkv(std::string label, tensor::DType dtype, const QkvNames& names,
                   const QkvHeads& heads, int64_t k);

// Rows of tensors one behind the other: no panel crosses the border of two entries.
struct PlannedRows {
  int32_t tensor;
  int64_t row, rows;
};
MatrixPlan PlanRows(std::string label, tensor::DType dtype, std::vector<std::string> tensors,
                    std::vector<int64_t> tensor_rows, const std::vector<PlannedRows>& rows,
                    int64_t k);

// gate and up interleaved, 32 columns of each in a panel. Equal names: up lies behind gate in one
// tensor.
MatrixPlan PlanGateUp(std::string label, tensor::DType dtype, std::string gate, std::string up,
                      std::string gate_bias, std::string up_bias, const TensorRows& rows,
                      int64_t k);

// The same plan of a matrix whose tiles are expanded whatever its tensors are stored in.
inline MatrixPlan Expanded(MatrixPlan plan) {
  plan.stays_expanded = true;
  return plan;
}

// A tensor of equal heads in order; some rows of each head are taken.
struct HeadRows {
  TensorRows heads = 1;  // of the tensor, and which of them are packed
  int64_t head_rows = 0;
  int64_t first = 0, rows = 0;  // within a head
  // The last `interleaved` rows taken of a head come in neighbouring pairs that rope rotates
  // together. Their first elements are packed before their second ones, because kernels rotate
  // halves.
  int64_t interleaved = 0;
};
// y = x W^T with W these rows [packed heads * rows, k], packed head by head: no panel crosses a
// head.
MatrixPlan PlanHeads(std::string label, tensor::DType dtype, std::string name, const HeadRows& rows,
                     int64_t k);
// A matrix a head, y = x W with W these rows [rows, k] of the head: packed head by head.
MatrixPlan PlanTransposedHeads(std::string label, tensor::DType dtype, std::string name,
                               const HeadRows& rows, int64_t k);

}  // namespace forebay::weights
