// Where weights come from: files (weights/formats) or a generator of random values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tensor/bf16.h"
#include "tensor/tensor.h"
#include "weights/stored_row.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kTensorMissing{"tensor_missing"};
inline constexpr base::ErrorCode kTensorShape{"tensor_shape"};
inline constexpr base::ErrorCode kTensorNotFinite{"tensor_not_finite"};

// Thread-safe after it was made. Names are Hugging Face's, rows in Hugging Face's order, whatever
// the file says.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  // The tensor's shape, outermost first, or kTensorMissing naming the model and the tensor.
  virtual base::Result<tensor::Shape> ShapeOf(std::string_view name) const = 0;
  virtual bool Has(std::string_view name) const = 0;
  // Where the tensor lies, for messages: a file's path.
  virtual std::string FileOf(std::string_view) const { return "weights"; }
  // Rows [begin, end) of a matrix [rows, columns] (a vector is one row) as exact fp32.
  // kTensorNotFinite names the tensor and the place of a NaN or an infinity.
  virtual base::Status ReadRows(std::string_view name, int64_t begin, int64_t end,
                                float* out) const = 0;
  // The same rows, rounded once (tensor::ToBF16).
  virtual base::Status ReadRows(std::string_view name, int64_t begin, int64_t end,
                                tensor::BF16* out) const;
  // How kernels can read the matrix' rows as they are stored; kExpanded: they cannot.
  virtual kernels::TileForm FormOf(std::string_view) const { return kernels::TileForm::kExpanded; }
  // Rows [begin, end) as they are stored, into out[end - begin]. REQUIRES: FormOf says how.
  // kTensorNotFinite names the tensor, the row and the group of a scale that is not.
  virtual base::Status ReadStored(std::string_view name, int64_t begin, int64_t end,
                                  StoredRowMemory* out) const;
  // The tensor has been read: its pages need not stay in memory. Reading it again is slower, not
  // wrong.
  virtual void DoneWith(std::string_view) const {}
};

}  // namespace forebay::weights
