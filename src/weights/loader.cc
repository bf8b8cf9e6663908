#include "weights/loader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <vector>

#include "device/host_writer.h"
#include "runtime/parallel_for.h"
#include "tensor/bf16.h"

namespace forebay::weights {
namespace {

using kernels::kPanelColumns;

base::Status CheckShape(const TensorReader& reader, const std::string& name,
                        const tensor::Shape& expected) {
  FB_ASSIGN_OR_RETURN(const tensor::Shape found, reader.ShapeOf(name));
  if (found == expected) return base::Status::Ok();
  return base::Status(
      kTensorShape, fmt::format("{}: tensor {} has shape {}; the model's configuration asks for {}",
                                reader.FileOf(name), name, found.ToString(), expected.ToString()));
}

float RoundVia(tensor::DType dtype, float value) {
  return dtype == tensor::DType::kBF16 ? tensor::ToFloat(tensor::ToBF16(value)) : value;
}

// Memory of a thread.
struct Scratch {
  explicit Scratch(device::Device* device) : writer(device) {}
  device::HostWriter writer;
  std::vector<std::byte> values;
  std::vector<StoredRowMemory> rows;
};

template <typename T>
T* RowsIn(Scratch* scratch, int64_t elements) {
  std::vector<std::byte>& values = scratch->values;
  values.resize(std::max(values.size(), static_cast<size_t>(elements) * sizeof(T)));
  return reinterpret_cast<T*>(values.data());
}

// A panel of a matrix, or of an expert's.
struct PanelWork {
  int32_t matrix, expert, panel;
};

// The columns of a panel of a transposed matrix, each K values.
template <typename T>
base::Status ReadColumns(const TensorReader& reader, const MatrixPlan& plan, const PanelWork& work,
                         Scratch* scratch, const T* columns[kPanelColumns]) {
  T* const turned = RowsIn<T>(scratch, plan.k * (kPanelColumns + plan.tensor_k));
  T* const rows = turned + plan.k * kPanelColumns;  // [k, tensor_k]
  for (const PanelPiece& piece : plan.PiecesOf(work.panel)) {
    FB_RETURN_IF_ERROR(reader.ReadRows(plan.TensorName(piece.tensor, work.expert), piece.row,
                                       piece.row + plan.k, rows));
    for (int c = 0; c < piece.width; ++c) {
      T* const column = turned + (piece.at + c) * plan.k;
      for (int64_t i = 0; i < plan.k; ++i) column[i] = rows[i * plan.tensor_k + piece.column + c];
      columns[piece.at + c] = column;
    }
  }
  return base::Status::Ok();
}

// The columns of a panel, which are rows of tensors, from the first input that is packed on.
template <typename T>
base::Status ReadColumnRows(const TensorReader& reader, const MatrixPlan& plan,
                            const PanelWork& work, Scratch* scratch,
                            const T* columns[kPanelColumns]) {
  T* const rows = RowsIn<T>(scratch, plan.tensor_k * kPanelColumns);
  for (const PanelPiece& piece : plan.PiecesOf(work.panel)) {
    T* const first = rows + piece.at * plan.tensor_k;
    FB_RETURN_IF_ERROR(reader.ReadRows(plan.TensorName(piece.tensor, work.expert), piece.row,
                                       piece.row + piece.width, first));
    for (int c = 0; c < piece.width; ++c)
      columns[piece.at + c] = first + c * plan.tensor_k + plan.first_k;
  }
  return base::Status::Ok();
}

std::byte* TileOf(const PlacedWeight& placed, const PanelWork& work, int leaf) {
  const kernels::PackedWeight& weight = placed.weight;
  return const_cast<std::byte*>(placed.num_experts > 0
                                    ? placed.runs[work.expert] + work.panel * weight.TileBytes(0, 0)
                                    : weight.tiles[leaf * weight.num_panels + work.panel]);
}

// Rows of a tensor in a form: as they are stored, or quantised. A row of a scale and int8 codes is
// one of kW8A8.
base::Status ReadAs(kernels::TileForm form, const TensorReader& reader, const std::string& name,
                    const PanelPiece& piece, int64_t k, Scratch* scratch) {
  using kernels::TileForm;
  StoredRowMemory* const out = scratch->rows.data() + piece.at;
  const int64_t end = piece.row + piece.width;
  const TileForm stored = reader.FormOf(name);
  if (stored == form || (form == TileForm::kW8A8 && stored == TileForm::kInt8Row))
    return reader.ReadStored(name, piece.row, end, out);
  float* const values = RowsIn<float>(scratch, piece.width * k);
  FB_RETURN_IF_ERROR(reader.ReadRows(name, piece.row, end, values));
  for (int64_t row = 0; row < piece.width; ++row) {
    QuantiseRow(form, values + row * k, k, out + row);
    const int64_t bad = FindBadGroup(form, out[row], k);
    if (bad < 0) continue;
    return {
        kTensorNotFinite,
        fmt::format("{}: tensor {}, row {}, group {} has values whose scale in {} is no finite "
                    "number; expected smaller weights, or --quantization auto",
                    reader.FileOf(name), name, piece.row + row, bad, kernels::TraitsOf(form).name)};
  }
  return base::Status::Ok();
}

// The panel's rows in its form, then a tile for each leaf.
base::Status PackStoredPanel(const TensorReader& reader, const PlacedMatrix& matrix,
                             const PanelWork& work, Scratch* scratch) {
  const MatrixPlan& plan = *matrix.plan;
  scratch->rows.resize(kPanelColumns);
  kernels::StoredRow rows[kPanelColumns];
  const kernels::StoredRow* columns[kPanelColumns] = {};
  for (const PanelPiece& piece : plan.PiecesOf(work.panel)) {
    FB_RETURN_IF_ERROR(ReadAs(matrix.placed.weight.FormOf(work.panel), reader,
                              plan.TensorName(piece.tensor, work.expert), piece, plan.tensor_k,
                              scratch));
    for (int c = 0; c < piece.width; ++c) {
      rows[piece.at + c] = scratch->rows[static_cast<size_t>(piece.at + c)].view();
      columns[piece.at + c] = &rows[piece.at + c];
    }
  }
  const kernels::PackedWeight& weight = matrix.placed.weight;
  for (int leaf = 0; leaf < plan.leaves.num_leaves; ++leaf) {
    std::byte* const tile = TileOf(matrix.placed, work, leaf);
    if (tile == nullptr) continue;
    kernels::PackTile(weight.FormOf(work.panel), plan.first_k + plan.leaves.begin[leaf],
                      plan.first_k + plan.leaves.begin[leaf + 1], columns,
                      scratch->writer.Begin(tile, weight.TileBytes(leaf, work.panel)));
    FB_RETURN_IF_ERROR(scratch->writer.End());
  }
  return base::Status::Ok();
}

// Its columns in the compute type T, then a tile for each leaf.
template <typename T>
base::Status PackPanel(const TensorReader& reader, const PlacedMatrix& matrix,
                       const PanelWork& work, Scratch* scratch) {
  const MatrixPlan& plan = *matrix.plan;
  const T* columns[kPanelColumns] = {};
  const auto read = plan.transposed ? ReadColumns<T> : ReadColumnRows<T>;
  FB_RETURN_IF_ERROR(read(reader, plan, work, scratch, columns));
  for (int leaf = 0; leaf < plan.leaves.num_leaves; ++leaf) {
    std::byte* const tile = TileOf(matrix.placed, work, leaf);
    if (tile == nullptr) continue;
    const int64_t begin = plan.leaves.begin[leaf];
    const T* leaf_columns[kPanelColumns];
    for (int c = 0; c < kPanelColumns; ++c)
      leaf_columns[c] = columns[c] ? columns[c] + begin : nullptr;
    kernels::PackTile(plan.packed, plan.leaves.begin[leaf + 1] - begin, leaf_columns,
                      scratch->writer.Begin(tile, matrix.placed.weight.ExpandedTileBytes(leaf)));
    FB_RETURN_IF_ERROR(scratch->writer.End());
  }
  return base::Status::Ok();
}

// Whether the rank has a part of it.
bool Keeps(const PlacedWeight& placed, const PanelWork& work) {
  if (placed.num_experts > 0) return placed.runs[work.expert] != nullptr;
  for (int leaf = 0; leaf < placed.weight.leaves.num_leaves; ++leaf) {
    if (placed.weight.tiles[leaf * placed.weight.num_panels + work.panel] != nullptr) return true;
  }
  return false;
}

// The biases of one of the matrices.
base::Status LoadBias(const TensorReader& reader, const PlacedMatrix& matrix, int32_t expert) {
  const MatrixPlan& plan = *matrix.plan;
  auto* bias = const_cast<float*>(matrix.placed.weight.bias) +
               static_cast<size_t>(expert) * plan.panels().size() * kPanelColumns;
  std::vector<std::vector<float>> values(plan.biases.size());
  for (size_t t = 0; t < plan.biases.size(); ++t) {
    if (plan.biases[t].empty()) continue;
    values[t].resize(plan.tensor_rows[t]);
    FB_RETURN_IF_ERROR(LoadVector(reader, plan.BiasName(t, expert), {plan.tensor_rows[t]},
                                  plan.dtype, values[t].data()));
  }
  for (size_t panel = 0; panel < plan.panels().size(); ++panel) {
    for (const PanelPiece& piece : plan.PiecesOf(panel)) {
      if (values[piece.tensor].empty()) continue;
      std::copy_n(values[piece.tensor].data() + piece.row, piece.width,
                  bias + panel * kPanelColumns + piece.at);
    }
  }
  return base::Status::Ok();
}

// Runs body(i) for i in [0, count) on threads; the first error stops the rest.
base::Status ForEach(int num_threads, int64_t count, device::Device* device,
                     const std::function<base::Status(int64_t, Scratch*)>& body) {
  std::mutex mutex;
  base::Status first_error;
  std::atomic<bool> failed{false};
  runtime::ParallelFor(num_threads, [&](runtime::Tickets& tickets) {
    Scratch scratch(device);
    for (int64_t i = tickets.Next(); i < count && !failed; i = tickets.Next()) {
      base::Status status = body(i, &scratch);
      if (status.ok()) continue;
      const std::lock_guard lock(mutex);
      if (first_error.ok()) first_error = std::move(status);
      failed = true;
    }
  });
  return first_error;
}

}  // namespace

PlacedWeight PlaceMatrix(const MatrixPlan& plan, device::RegionCutter* tables) {
  PlacedWeight placed{.weight = plan.Geometry(), .num_experts = plan.num_experts};
  kernels::PackedWeight& weight = placed.weight;
  const size_t num_runs = NumRuns(placed);
  auto** const pointers =
      reinterpret_cast<const std::byte**>(tables->Cut(num_runs * sizeof(void*)));
  std::fill_n(pointers, num_runs, nullptr);
  (plan.num_experts > 0 ? placed.runs : weight.tiles) = pointers;
  auto* panels = reinterpret_cast<kernels::PanelColumns*>(
      tables->Cut(weight.num_panels * sizeof(kernels::PanelColumns)));
  for (int32_t panel = 0; panel < weight.num_panels; ++panel)
    panels[panel] = plan.panels()[panel].columns;
  if (!plan.forms.empty()) {
    auto* const forms = reinterpret_cast<kernels::TileForm*>(
        tables->Cut(plan.forms.size() * sizeof(kernels::TileForm)));
    std::ranges::copy(plan.forms, forms);
    weight.forms = forms;
  }
  if (!plan.biases.empty()) {
    weight.bias = reinterpret_cast<const float*>(tables->Cut(
        static_cast<size_t>(plan.count()) * weight.num_panels * kPanelColumns * sizeof(float)));
  }
  weight.panels = panels;
  return placed;
}

size_t NumRuns(const PlacedWeight& placed) {
  if (placed.num_experts > 0) return static_cast<size_t>(placed.num_experts);
  return static_cast<size_t>(placed.weight.leaves.num_leaves) *
         static_cast<size_t>(placed.weight.num_panels);
}

PlacedWeight WithOwnRuns(PlacedWeight placed, const std::byte** pointers) {
  const std::byte* const*& runs = placed.num_experts > 0 ? placed.runs : placed.weight.tiles;
  std::copy_n(runs, NumRuns(placed), pointers);
  runs = pointers;
  return placed;
}

void SetRun(const PlacedWeight& placed, const RunPlace& run, const std::byte* memory) {
  // The table is control memory that PlaceMatrix cut; kernels alone see it as constant.
  if (placed.num_experts > 0) {
    const_cast<const std::byte**>(placed.runs)[run.expert] = memory;
  } else {
    const kernels::PackedWeight& weight = placed.weight;
    const_cast<const std::byte**>(weight.tiles)[run.leaf * weight.num_panels + run.panel] = memory;
  }
}

base::Status LoadMatrices(const TensorReader& reader, std::span<const PlacedMatrix> matrices,
                          int num_threads, device::Device* device) {
  std::vector<PanelWork> work;
  std::vector<size_t> first;  // [matrices]: of each matrix, the number of its first expert
  size_t experts = 0;
  for (size_t m = 0; m < matrices.size(); ++m) {
    const auto& [plan, placed] = matrices[m];
    first.push_back(experts);
    experts += static_cast<size_t>(plan->count());
    for (int32_t expert = 0; expert < plan->count(); ++expert) {
      if (!plan->biases.empty()) FB_RETURN_IF_ERROR(LoadBias(reader, matrices[m], expert));
      for (size_t t = 0; t < plan->tensors.size(); ++t) {
        FB_RETURN_IF_ERROR(CheckShape(reader, plan->TensorName(t, expert),
                                      {plan->tensor_rows[t], plan->tensor_k}));
      }
      for (int32_t panel = 0; panel < static_cast<int32_t>(plan->panels().size()); ++panel)
        work.push_back({static_cast<int32_t>(m), expert, panel});
    }
  }
  std::vector<std::atomic<size_t>> packed(experts);
  return ForEach(
      num_threads, static_cast<int64_t>(work.size()), device, [&](int64_t i, Scratch* scratch) {
        const PlacedMatrix& matrix = matrices[static_cast<size_t>(work[i].matrix)];
        const MatrixPlan& plan = *matrix.plan;
        const bool stored =
            matrix.placed.weight.FormOf(work[i].panel) != kernels::TileForm::kExpanded;
        const auto pack = stored                               ? PackStoredPanel
                          : plan.dtype == tensor::DType::kBF16 ? PackPanel<tensor::BF16>
                                                               : PackPanel<float>;
        if (Keeps(matrix.placed, work[i]))
          FB_RETURN_IF_ERROR(pack(reader, matrix, work[i], scratch));
        // Files are not held in memory beside what was packed of them.
        const size_t number = first[work[i].matrix] + static_cast<size_t>(work[i].expert);
        if (packed[number].fetch_add(1) + 1 == plan.panels().size()) {
          for (size_t t = 0; t < plan.tensors.size(); ++t)
            reader.DoneWith(plan.TensorName(t, work[i].expert));
        }
        return base::Status::Ok();
      });
}

base::Status LoadVector(const TensorReader& reader, const std::string& name,
                        const tensor::Shape& shape, tensor::DType dtype, float* out) {
  FB_RETURN_IF_ERROR(CheckShape(reader, name, shape));
  const int64_t size = shape.elements();
  FB_RETURN_IF_ERROR(reader.ReadRows(name, 0, shape.rank() > 1 ? shape[0] : 1, out));
  for (int64_t i = 0; i < size; ++i) out[i] = RoundVia(dtype, out[i]);
  return base::Status::Ok();
}

base::Status LoadRowMajor(const TensorReader& reader, const std::string& name, int64_t rows,
                          int64_t columns, tensor::DType dtype, std::byte* out, int num_threads,
                          device::Device* device) {
  FB_RETURN_IF_ERROR(CheckShape(reader, name, {rows, columns}));
  constexpr int64_t kRowsAtOnce = 64;
  const base::Status read = ForEach(
      num_threads, (rows + kRowsAtOnce - 1) / kRowsAtOnce, device,
      [&](int64_t i, Scratch* scratch) {
        const int64_t begin = i * kRowsAtOnce, end = std::min(rows, begin + kRowsAtOnce);
        const auto read_as = [&]<typename T>(T* at) {
          T* const values = scratch->writer.Begin(at + begin * columns, (end - begin) * columns);
          const base::Status status = reader.ReadRows(name, begin, end, values);
          return status.ok() ? scratch->writer.End() : status;
        };
        return dtype == tensor::DType::kF32 ? read_as(reinterpret_cast<float*>(out))
                                            : read_as(reinterpret_cast<tensor::BF16*>(out));
      });
  reader.DoneWith(name);
  return read;
}

}  // namespace forebay::weights
