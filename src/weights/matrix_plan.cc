#include "weights/matrix_plan.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/check.h"

namespace forebay::weights {
namespace {

using kernels::kPanelColumns;

struct RowRun {
  int64_t row, rows;
};

// Adds panels for runs of rows of tensors[tensor], one behind the other; outputs count from
// `column` on. Returns the column behind them.
int64_t AddPanels(PanelTable* table, int32_t tensor, std::span<const RowRun> runs, int64_t column) {
  std::vector<PanelPiece>& pieces = table->pieces;
  int64_t room = 0;  // of the last panel
  for (auto [row, rows] : runs) {
    while (rows > 0) {
      if (room == 0) {
        table->Add({static_cast<int32_t>(column), 0}, {});
        room = kPanelColumns;
      }
      PanelPlan& panel = table->panels.back();
      const auto width = static_cast<int32_t>(std::min(room, rows));
      if (panel.num_pieces > 0 && row == pieces.back().row + pieces.back().width) {
        pieces.back().width += width;
      } else {
        pieces.push_back({tensor, row, width, panel.columns.width});
        ++panel.num_pieces;
      }
      panel.columns.width += width;
      column += width;
      room -= width;
      row += width;
      rows -= width;
    }
  }
  return column;
}

void AddPanels(PanelTable* table, int32_t tensor, int64_t row, int64_t rows, int64_t column) {
  AddPanels(table, tensor, std::array{RowRun{row, rows}}, column);
}

// Adds the rows of a head from `row` on; stored(i): which of them is packed as number i.
template <typename Stored>
void AddRuns(int64_t row, int64_t rows, Stored stored, std::vector<RowRun>* runs) {
  for (int64_t i = 0; i < rows; ++i) runs->push_back({row + stored(i), 1});
}

std::shared_ptr<const PanelTable> Kept(PanelTable table) {
  return std::make_shared<const PanelTable>(std::move(table));
}

// Whether kernels find a head's elements in the order in which they are stored.
bool IsAsStored(const HeadOrder& order) {
  return !order.interleaved && order.rotary_dim == order.head_dim && order.head_dim % 2 == 0;
}

bool AnyBias(const std::vector<std::string>& biases) {
  return std::any_of(biases.begin(), biases.end(),
                     [](const std::string& name) { return !name.empty(); });
}

}  // namespace

void PanelTable::Add(const kernels::PanelColumns& columns,
                     std::initializer_list<PanelPiece> of_panel) {
  panels.push_back(
      {columns, static_cast<int32_t>(pieces.size()), static_cast<int32_t>(of_panel.size())});
  pieces.insert(pieces.end(), of_panel);
}

kernels::PackedWeight MatrixPlan::Geometry() const {
  kernels::PackedWeight weight;
  weight.dtype = dtype;
  weight.stored = stored;
  weight.k = static_cast<int32_t>(k);
  weight.n = static_cast<int32_t>(n);
  weight.num_panels = static_cast<int32_t>(panels().size());
  weight.leaves = leaves;
  weight.form = form;
  weight.packed = packed;
  weight.forms = forms.empty() ? nullptr : forms.data();
  weight.first_k = static_cast<int32_t>(first_k);
  return weight;
}

void MatrixPlan::SetForms(const std::vector<kernels::TileForm>& of_tensors) {
  using kernels::TileForm;
  FB_CHECK(!stays_expanded, "{} stays expanded", label);
  if (panels().empty()) return;
  forms.clear();
  for (size_t panel = 0; panel < panels().size(); ++panel) {
    const std::span<const PanelPiece> pieces = PiecesOf(panel);
    TileForm of_panel = of_tensors[static_cast<size_t>(pieces.front().tensor)];
    for (const PanelPiece& piece : pieces) {
      if (of_tensors[static_cast<size_t>(piece.tensor)] != of_panel) of_panel = TileForm::kExpanded;
    }
    forms.push_back(of_panel);
  }
  const bool alike = std::ranges::all_of(forms, [&](TileForm f) { return f == forms.front(); });
  form = alike ? forms.front() : TileForm::kExpanded;
  if (alike || num_experts > 0) forms.clear();
}

std::string MatrixPlan::NameOf(std::string name, int32_t expert) const {
  if (num_experts > 0) name.replace(name.find("{}"), 2, std::to_string(first_expert + expert));
  return name;
}

uint64_t MatrixPlan::TableBytes() const {
  const uint64_t tiles = num_experts > 0
                             ? static_cast<uint64_t>(num_experts)
                             : static_cast<uint64_t>(leaves.num_leaves) * panels().size();
  const uint64_t bias = biases.empty() ? 0
                                       : static_cast<uint64_t>(count()) * panels().size() *
                                             kPanelColumns * sizeof(float);
  return base::RoundUp(tiles * sizeof(void*), 64) +
         base::RoundUp(forms.size() * sizeof(kernels::TileForm), 64) +
         base::RoundUp(panels().size() * sizeof(kernels::PanelColumns), 64) +
         base::RoundUp(bias, 64);
}

bool MatrixPlan::HasTilesOf(const MatrixPlan& other) const {
  return table == other.table && num_experts == other.num_experts && dtype == other.dtype &&
         stored == other.stored && form == other.form && forms == other.forms &&
         packed == other.packed && first_k == other.first_k &&
         leaves.num_leaves == other.leaves.num_leaves &&
         std::ranges::equal(leaves.begin, other.leaves.begin);
}

void MatrixPlan::KeepLeaves(const base::Part& kept) {
  first_k += leaves.begin[kept.begin];
  leaves = leaves.Slice(static_cast<int>(kept.begin), static_cast<int>(kept.end));
  k = leaves.begin[leaves.num_leaves];
}

MatrixPlan PlanMatrix(std::string label, tensor::DType dtype, std::string name, std::string bias,
                      const TensorRows& rows, int64_t k, const kernels::LeafBorders& leaves) {
  MatrixPlan plan{.label = std::move(label),
                  .dtype = dtype,
                  .k = k,
                  .n = rows.part.size(),
                  .leaves = leaves,
                  .tensor_k = k};
  plan.tensors = {std::move(name)};
  plan.tensor_rows = {rows.total};
  if (!bias.empty()) plan.biases = {std::move(bias)};
  PanelTable table;
  AddPanels(&table, 0, rows.part.begin, plan.n, 0);
  plan.table = Kept(std::move(table));
  return plan;
}

MatrixPlan PlanQkv(std::string label, tensor::DType dtype, const QkvNames& names,
                   const QkvHeads& heads, int64_t k) {
  MatrixPlan plan{.label = std::move(label),
                  .dtype = dtype,
                  .k = k,
                  .leaves = kernels::LeafBorders::Single(k),
                  .tensor_k = k};
  const bool fused = names.q == names.k;
  const int64_t head_dim = heads.order.head_dim;
  const int64_t query_rows = heads.query_rows > 0 ? heads.query_rows : head_dim;
  const int64_t rows[] = {heads.total * query_rows, heads.total_kv * head_dim,
                          heads.total_kv * head_dim};
  if (fused) {
    plan.tensors = {names.q};
    plan.tensor_rows = {rows[0] + rows[1] + rows[2]};
    plan.biases = {names.q_bias};
  } else if (names.k.empty()) {
    plan.tensors = {names.q};
    plan.tensor_rows = {rows[0]};
    plan.biases = {names.q_bias};
  } else {
    plan.tensors = {names.q, names.k, names.v};
    plan.tensor_rows = {rows[0], rows[1], rows[2]};
    plan.biases = {names.q_bias, names.k_bias, names.v_bias};
  }
  if (!AnyBias(plan.biases)) plan.biases.clear();
  const std::vector<int32_t>* heads_of[] = {&heads.query, &heads.kv, &heads.kv};
  PanelTable table;
  int64_t first = 0;
  std::vector<RowRun> runs;
  for (int32_t part = 0; part < 3; ++part) {
    const auto end_panel = [&] {
      plan.n = AddPanels(&table, fused ? 0 : part, runs, plan.n);
      runs.clear();
    };
    for (const int32_t head : *heads_of[part]) {
      const int64_t row = (fused ? first : 0) + head * (part == 0 ? query_rows : head_dim);
      if (part == 2 || IsAsStored(heads.order)) {
        runs.push_back({row, head_dim});
      } else {
        AddRuns(
            row, head_dim, [&](int64_t i) { return heads.order.Stored(i); }, &runs);
      }
      if (!heads.share_panels) end_panel();
    }
    end_panel();
    first += rows[part];
  }
  plan.table = Kept(std::move(table));
  return plan;
}

MatrixPlan PlanRows(std::string label, tensor::DType dtype, std::vector<std::string> tensors,
                    std::vector<int64_t> tensor_rows, const std::vector<PlannedRows>& rows,
                    int64_t k) {
  MatrixPlan plan{.label = std::move(label),
                  .dtype = dtype,
                  .k = k,
                  .leaves = kernels::LeafBorders::Single(k),
                  .tensor_k = k};
  plan.tensors = std::move(tensors);
  plan.tensor_rows = std::move(tensor_rows);
  PanelTable table;
  for (const PlannedRows& part : rows) {
    AddPanels(&table, part.tensor, part.row, part.rows, plan.n);
    plan.n += part.rows;
  }
  plan.table = Kept(std::move(table));
  return plan;
}

MatrixPlan PlanGateUp(std::string label, tensor::DType dtype, std::string gate, std::string up,
                      std::string gate_bias, std::string up_bias, const TensorRows& rows,
                      int64_t k) {
  MatrixPlan plan{.label = std::move(label),
                  .dtype = dtype,
                  .k = k,
                  .n = rows.part.size(),
                  .leaves = kernels::LeafBorders::Single(k),
                  .tensor_k = k};
  const bool fused = gate == up;
  if (fused) {
    plan.tensors = {std::move(gate)};
    plan.tensor_rows = {2 * rows.total};
    plan.biases = {std::move(gate_bias)};
  } else {
    plan.tensors = {std::move(gate), std::move(up)};
    plan.tensor_rows = {rows.total, rows.total};
    plan.biases = {std::move(gate_bias), std::move(up_bias)};
  }
  if (!AnyBias(plan.biases)) plan.biases.clear();
  constexpr int kHalf = kPanelColumns / 2;
  PanelTable table;
  for (int64_t row = rows.part.begin; row < rows.part.end; row += kHalf) {
    const auto width = static_cast<int32_t>(std::min<int64_t>(kHalf, rows.part.end - row));
    const auto column = static_cast<int32_t>(row - rows.part.begin);
    const PanelPiece up_piece =
        fused ? PanelPiece{0, rows.total + row, width, kHalf} : PanelPiece{1, row, width, kHalf};
    table.Add({column, width}, {{0, row, width, 0}, up_piece});
  }
  plan.table = Kept(std::move(table));
  return plan;
}

MatrixPlan PlanHeads(std::string label, tensor::DType dtype, std::string name, const HeadRows& rows,
                     int64_t k) {
  MatrixPlan plan{.label = std::move(label),
                  .dtype = dtype,
                  .k = k,
                  .leaves = kernels::LeafBorders::Single(k),
                  .tensor_k = k};
  plan.tensors = {std::move(name)};
  plan.tensor_rows = {rows.heads.total * rows.head_rows};
  const int64_t plain = rows.rows - rows.interleaved;
  const HeadOrder turned{rows.interleaved, rows.interleaved, true};
  PanelTable table;
  for (int64_t head = rows.heads.part.begin; head < rows.heads.part.end; ++head) {
    std::vector<RowRun> runs;
    AddRuns(
        head * rows.head_rows + rows.first, rows.rows,
        [&](int64_t i) { return i < plain ? i : plain + turned.Stored(i - plain); }, &runs);
    plan.n = AddPanels(&table, 0, runs, plan.n);
  }
  plan.table = Kept(std::move(table));
  return plan;
}

MatrixPlan PlanTransposedHeads(std::string label, tensor::DType dtype, std::string name,
                               const HeadRows& rows, int64_t k) {
  MatrixPlan plan{.label = std::move(label),
                  .dtype = dtype,
                  .k = rows.rows,
                  .n = rows.heads.part.size() * k,
                  .leaves = kernels::LeafBorders::Single(rows.rows),
                  .tensor_k = k,
                  .transposed = true};
  plan.tensors = {std::move(name)};
  plan.tensor_rows = {rows.heads.total * rows.head_rows};
  PanelTable table;
  for (int64_t slot = 0; slot < rows.heads.part.size(); ++slot) {
    const int64_t head = rows.heads.part.begin + slot;
    for (int64_t at = 0; at < k; at += kPanelColumns) {
      const auto width = static_cast<int32_t>(std::min<int64_t>(kPanelColumns, k - at));
      table.Add({static_cast<int32_t>(slot * k + at), width},
                {{0, head * rows.head_rows + rows.first, width, 0, at}});
    }
  }
  plan.table = Kept(std::move(table));
  return plan;
}

}  // namespace forebay::weights
