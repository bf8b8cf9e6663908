// A model's weights as files hold them: an HF folder (one model.safetensors, or shards with an index) or a GGUF file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weights/formats/gguf.h"
#include "weights/formats/mapped_file.h"
#include "weights/formats/tensor_info.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kWeightsNotFound{"weights_not_found"};
inline constexpr base::ErrorCode kWeightsFormatUnsupported{"weights_format_unsupported"};
inline constexpr base::ErrorCode kWeightsIndexInvalid{"weights_index_invalid"};
inline constexpr base::ErrorCode kTensorMissing{"tensor_missing"};
inline constexpr base::ErrorCode kTensorDuplicate{"tensor_duplicate"};
inline constexpr base::ErrorCode kTensorShapeMismatch{"tensor_shape_mismatch"};
inline constexpr base::ErrorCode kTensorNotFinite{"tensor_not_finite"};

// Owns the mapped files. Tensors go by HF's names, and their rows are read in HF's order, whatever the file has.
// Const calls are thread-safe; several threads may read at once, also the same tensor.
class WeightSource {
 public:
  // `path`: a folder or a GGUF file. All headers are checked here, the data only when they are read.
  static base::Result<WeightSource> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<MappedFile>& files() const { return files_; }
  // The GGUF file's metadata; nullptr for a folder.
  const GgufFile* gguf() const { return gguf_ ? &*gguf_ : nullptr; }

  // Sorted by name.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  std::vector<std::string_view> names() const;
  // nullptr if there is none.
  const TensorInfo* Find(std::string_view name) const;
  // The tensor, if it is there and has that shape and a type that ExpandRows reads; else an error that names the file.
  base::Result<const TensorInfo*> Require(std::string_view name, const tensor::Shape& shape) const;

  // Rows row_begin .. row_end - 1 as exact fp32 into `out` [row_end - row_begin, columns]. A NaN or an infinity is an
  // error that names its place. REQUIRES: a tensor of this source, 0 <= row_begin <= row_end <= rows().
  base::Status ExpandRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_end, float* out) const;

  // Tells the kernel that the tensor has been read, so that its pages no longer count as ours.
  void Drop(const TensorInfo& tensor) const { files_[tensor.file].Drop(tensor.data); }

  // A 64-bit hash of `config` (config.json's text; empty for a GGUF file, whose metadata are hashed), of what the
  // headers say, the files' sizes and a few samples of each tensor's bytes. Paths and times do not matter.
  uint64_t Fingerprint(std::string_view config) const;

 private:
  WeightSource() = default;
  base::Status AddSafetensors(const std::string& path);
  base::Status AddShards(const std::string& index_path);
  base::Status AddGguf();
  base::Status SortTensors();
  base::Status CheckType(const TensorInfo& tensor) const;
  // "FILE: tensor NAME".
  std::string Label(const TensorInfo& tensor) const;

  std::string path_;
  std::vector<MappedFile> files_;
  std::optional<GgufFile> gguf_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace forebay::weights
