// What a weight file says about one tensor, whatever the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "kernels/tile_form.h"
#include "tensor/tensor.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kTensorTypeUnsupported{"tensor_type_unsupported"};

// An element type as files name it: one row of a fixed table, compared by address.
struct StoredType {
  std::string_view name;       // the format's own spelling, e.g. "Q6_K"
  tensor::BlockFormat format;  // size of a block; a tensor's rows are whole blocks
  // Types of whole elements, and quantised ones with a reader of their own (dequantize.h).
  std::optional<tensor::DType> dtype;
  // Quantised types that kernels read as they are stored. Neither: Forebay can name it, but not
  // read it.
  kernels::TileForm form = kernels::TileForm::kExpanded;
};

// The row of a GGUF type id, or of a safetensors dtype; nullptr if no such type is known.
const StoredType* FindGgmlType(uint32_t id);
const StoredType* FindSafetensorsType(std::string_view name);
// The blocks of a GGUF type by its form; {1, 0}: no GGUF type has this form.
tensor::BlockFormat BlocksOf(kernels::TileForm form);

// Of a tensor that nothing here can read, neither its elements nor its shape: it may be one that
// nothing needs.
extern const StoredType kUnreadableType;

struct QuantParts;
struct LatentParts;

// Where a file has rows otherwise than Hugging Face: from row `first` on HF has blocks of
// [outer, inner, unit] rows, and the file the same blocks as [inner, outer, unit].
struct RowOrder {
  int64_t first = 0, outer = 0, inner = 0, unit = 1;  // outer = 0: HF's order

  bool changed() const { return outer > 0; }
  int64_t block() const { return outer * inner * unit; }
  // Where HF's row lies in the file.
  int64_t Stored(int64_t row) const {
    if (!changed() || row < first) return row;
    const int64_t within = (row - first) % block(), place = within % unit, group = within / unit;
    return row - within + (group % inner * outer + group / inner) * unit + place;
  }
};

// How a file holds values otherwise than Hugging Face.
struct Rearrangement {
  RowOrder rows;  // or a vector's elements
  RowOrder columns;
  bool negated_exp = false;  // the file holds -e^x where Hugging Face has x
  // Of a latent attention's keys and values, which are tensors of their own (latent_tensors.h);
  // the tensor's data and type are those of the values.
  std::shared_ptr<const LatentParts> latent;
};

// Borrows its data from the mapped file. A short header may name many of these: what few tensors
// have lies behind a pointer (memory_test.cc).
struct TensorInfo {
  // as Hugging Face names it, e.g. "model.layers.0.mlp.up_proj.weight"
  std::string name;
  std::string own_name;  // the file's name, where that is another
  std::string why;       // of kUnreadableType: "dtype F4, which is not known here"
  const StoredType* type = nullptr;
  tensor::Shape shape;  // outermost first
  // rows in the order of the file
  std::span<const std::byte> data;
  int32_t file = 0;  // index into WeightSource::files()
  int32_t step = 1;  // of a transposed matrix' rows, or of a vector's elements
  std::shared_ptr<const Rearrangement> rearranged;  // null: as Hugging Face has them
  // Not 0: stored transposed, as a part of wider rows: element (row, column) of the matrix is
  // element column * transposed_stride + row * step of `data`.
  int64_t transposed_stride = 0;
  // Of a matrix whose codes, scales and zero points are tensors of their own
  // (quantised_tensors.h); `data` and `type` are those of the codes.
  std::shared_ptr<const QuantParts> parts;

  const Rearrangement& arrangement() const {
    static const Rearrangement kSame;
    return rearranged != nullptr ? *rearranged : kSame;
  }
  // A matrix has shape[0] rows; a vector is one row; with more extents, the last one is the
  // columns.
  int64_t columns() const { return shape.rank() == 0 ? 1 : shape[shape.rank() - 1]; }
  int64_t rows() const { return columns() == 0 ? 0 : shape.elements() / columns(); }
};

// REQUIRES: at most Shape::kMaxRank extents that StoredBytes accepts, or the shape is for a message
// only.
tensor::Shape MakeShape(std::span<const uint64_t> extents);

// Bytes of a dense tensor of that shape. Nothing if a row is no whole number of blocks or a product
// overflows.
std::optional<uint64_t> StoredBytes(const StoredType& type, std::span<const uint64_t> extents);

}  // namespace forebay::weights
