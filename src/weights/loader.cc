#include "weights/loader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "runtime/parallel_for.h"
#include "tensor/bf16.h"

namespace forebay::weights {
namespace {

using kernels::kPanelColumns;

base::Status CheckShape(const TensorReader& reader, const std::string& name, const tensor::Shape& expected) {
  FB_ASSIGN_OR_RETURN(const tensor::Shape found, reader.ShapeOf(name));
  if (found == expected) return base::Status::Ok();
  return base::Status(kTensorShape, fmt::format("{}: tensor {} has shape {}; the model's configuration asks for {}",
                                                reader.FileOf(name), name, found.ToString(), expected.ToString()));
}

float RoundVia(tensor::DType dtype, float value) {
  return dtype == tensor::DType::kBF16 ? tensor::ToFloat(tensor::ToBF16(value)) : value;
}

// Memory of a thread.
using Scratch = std::vector<std::byte>;

template <typename T>
T* RowsIn(Scratch* scratch, int64_t elements) {
  scratch->resize(std::max(scratch->size(), static_cast<size_t>(elements) * sizeof(T)));
  return reinterpret_cast<T*>(scratch->data());
}

// One panel: its rows in the compute type T, then a tile for each leaf.
template <typename T>
base::Status PackPanel(const TensorReader& reader, const PlacedMatrix& matrix, int64_t panel, Scratch* scratch) {
  const MatrixPlan& plan = *matrix.plan;
  const auto tile_of = [&](int leaf) { return const_cast<std::byte*>(matrix.weight.tiles[leaf * matrix.weight.num_panels + panel]); };
  bool kept = false;
  for (int leaf = 0; leaf < plan.leaves.num_leaves; ++leaf) kept |= tile_of(leaf) != nullptr;
  if (!kept) return base::Status::Ok();
  T* const rows = RowsIn<T>(scratch, plan.tensor_k * kPanelColumns);
  const T* columns[kPanelColumns] = {};
  for (const PanelPiece& piece : plan.panels[panel].pieces) {
    T* const first = rows + piece.at * plan.tensor_k;
    FB_RETURN_IF_ERROR(reader.ReadRows(plan.tensors[piece.tensor], piece.row, piece.row + piece.width, first));
    for (int c = 0; c < piece.width; ++c) columns[piece.at + c] = first + c * plan.tensor_k + plan.first_k;
  }
  for (int leaf = 0; leaf < plan.leaves.num_leaves; ++leaf) {
    if (tile_of(leaf) == nullptr) continue;
    const int64_t begin = plan.leaves.begin[leaf];
    const T* leaf_columns[kPanelColumns];
    for (int c = 0; c < kPanelColumns; ++c) leaf_columns[c] = columns[c] ? columns[c] + begin : nullptr;
    kernels::PackTile(plan.leaves.begin[leaf + 1] - begin, leaf_columns, tile_of(leaf));
  }
  return base::Status::Ok();
}

base::Status LoadBias(const TensorReader& reader, const PlacedMatrix& matrix) {
  const MatrixPlan& plan = *matrix.plan;
  auto* bias = const_cast<float*>(matrix.weight.bias);
  std::vector<std::vector<float>> values(plan.biases.size());
  for (size_t t = 0; t < plan.biases.size(); ++t) {
    if (plan.biases[t].empty()) continue;
    values[t].resize(plan.tensor_rows[t]);
    FB_RETURN_IF_ERROR(LoadVector(reader, plan.biases[t], plan.tensor_rows[t], plan.dtype, values[t].data()));
  }
  for (size_t panel = 0; panel < plan.panels.size(); ++panel) {
    for (const PanelPiece& piece : plan.panels[panel].pieces) {
      if (values[piece.tensor].empty()) continue;
      std::copy_n(values[piece.tensor].data() + piece.row, piece.width, bias + panel * kPanelColumns + piece.at);
    }
  }
  return base::Status::Ok();
}

// Runs body(i) for i in [0, count) on threads; the first error stops the rest.
base::Status ForEach(int num_threads, int64_t count, const std::function<base::Status(int64_t, Scratch*)>& body) {
  std::mutex mutex;
  base::Status first_error;
  std::atomic<bool> failed{false};
  runtime::ParallelFor(num_threads, [&](runtime::Tickets& tickets) {
    Scratch scratch;
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

PlacedMatrix PlaceMatrix(const MatrixPlan& plan, const std::function<std::byte*(uint64_t bytes)>& tile,
                         device::RegionCutter* tables) {
  PlacedMatrix placed{&plan, plan.Geometry()};
  kernels::PackedWeight& weight = placed.weight;
  auto* tiles = reinterpret_cast<std::byte**>(
      tables->Cut(static_cast<uint64_t>(weight.leaves.num_leaves) * weight.num_panels * sizeof(void*)));
  auto* panels = reinterpret_cast<kernels::PanelColumns*>(tables->Cut(weight.num_panels * sizeof(kernels::PanelColumns)));
  for (int32_t panel = 0; panel < weight.num_panels; ++panel) panels[panel] = plan.panels[panel].columns;
  if (!plan.biases.empty()) {
    weight.bias = reinterpret_cast<const float*>(tables->Cut(weight.num_panels * kPanelColumns * sizeof(float)));
  }
  for (int leaf = 0; leaf < weight.leaves.num_leaves; ++leaf) {
    for (int32_t panel = 0; panel < weight.num_panels; ++panel) {
      tiles[leaf * weight.num_panels + panel] = tile(static_cast<uint64_t>(weight.TileBytes(leaf)));
    }
  }
  weight.tiles = tiles;
  weight.panels = panels;
  return placed;
}

base::Status LoadMatrices(const TensorReader& reader, std::span<const PlacedMatrix> matrices, int num_threads) {
  std::vector<std::pair<int32_t, int32_t>> work;  // (matrix, panel)
  for (size_t m = 0; m < matrices.size(); ++m) {
    const MatrixPlan& plan = *matrices[m].plan;
    for (size_t t = 0; t < plan.tensors.size(); ++t) {
      FB_RETURN_IF_ERROR(CheckShape(reader, plan.tensors[t], {plan.tensor_rows[t], plan.tensor_k}));
    }
    if (!plan.biases.empty()) FB_RETURN_IF_ERROR(LoadBias(reader, matrices[m]));
    for (size_t panel = 0; panel < plan.panels.size(); ++panel) work.emplace_back(m, panel);
  }
  std::vector<std::atomic<size_t>> packed(matrices.size());
  return ForEach(num_threads, static_cast<int64_t>(work.size()), [&](int64_t i, Scratch* scratch) {
    const auto [m, panel] = work[i];
    const MatrixPlan& plan = *matrices[m].plan;
    const auto pack = plan.dtype == tensor::DType::kBF16 ? PackPanel<tensor::BF16> : PackPanel<float>;
    FB_RETURN_IF_ERROR(pack(reader, matrices[m], panel, scratch));
    // Files are not held in memory beside what was packed of them.
    if (packed[m].fetch_add(1) + 1 == plan.panels.size()) {
      for (const std::string& tensor : plan.tensors) reader.DoneWith(tensor);
    }
    return base::Status::Ok();
  });
}

base::Status LoadVector(const TensorReader& reader, const std::string& name, int64_t size, tensor::DType dtype, float* out) {
  FB_RETURN_IF_ERROR(CheckShape(reader, name, {size}));
  FB_RETURN_IF_ERROR(reader.ReadRows(name, 0, 1, out));
  for (int64_t i = 0; i < size; ++i) out[i] = RoundVia(dtype, out[i]);
  return base::Status::Ok();
}

base::Status LoadRowMajor(const TensorReader& reader, const std::string& name, int64_t rows, int64_t columns,
                          tensor::DType dtype, std::byte* out, int num_threads) {
  FB_RETURN_IF_ERROR(CheckShape(reader, name, {rows, columns}));
  constexpr int64_t kRowsAtOnce = 64;
  const base::Status read = ForEach(num_threads, (rows + kRowsAtOnce - 1) / kRowsAtOnce, [&](int64_t i, Scratch*) {
    const int64_t begin = i * kRowsAtOnce, end = std::min(rows, begin + kRowsAtOnce);
    if (dtype == tensor::DType::kF32) return reader.ReadRows(name, begin, end, reinterpret_cast<float*>(out) + begin * columns);
    return reader.ReadRows(name, begin, end, reinterpret_cast<tensor::BF16*>(out) + begin * columns);
  });
  reader.DoneWith(name);
  return read;
}

}  // namespace forebay::weights
