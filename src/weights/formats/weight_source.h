// A model's weights as files hold them: an HF folder (one model.safetensors, or shards with an
// index) or a GGUF file, in one piece or in parts (NAME-00001-of-0000N.gguf, of which the first has
// the metadata).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weights/formats/gguf.h"
#include "weights/formats/mapped_file.h"
#include "weights/formats/tensor_info.h"
#include "weights/tensor_reader.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kWeightsNotFound{"weights_not_found"};
inline constexpr base::ErrorCode kWeightsFormatUnsupported{"weights_format_unsupported"};
inline constexpr base::ErrorCode kWeightsIndexInvalid{"weights_index_invalid"};
inline constexpr base::ErrorCode kTensorDuplicate{"tensor_duplicate"};
inline constexpr base::ErrorCode kGgufSplit{"gguf_split_invalid"};

// Owns the mapped files. Const calls are thread-safe; several threads may read at once, also the
// same tensor.
class WeightSource : public TensorReader {
 public:
  // `path`: a folder or a GGUF file. All headers are checked here, the data only when they are
  // read.
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
  bool Has(std::string_view name) const override { return Find(name) != nullptr; }
  // Also kTensorTypeUnsupported, so that a type that cannot be read is known before anything is.
  base::Result<tensor::Shape> ShapeOf(std::string_view name) const override;
  std::string FileOf(std::string_view name) const override;
  base::Status ReadRows(std::string_view name, int64_t begin, int64_t end,
                        float* out) const override;
  base::Status ReadRows(std::string_view name, int64_t begin, int64_t end,
                        tensor::BF16* out) const override;

  kernels::TileForm FormOf(std::string_view name) const override;
  base::Status ReadStored(std::string_view name, int64_t begin, int64_t end,
                          StoredRowMemory* out) const override;

  // Gives a tensor another name for readers. REQUIRES: it is there, and none has the new name.
  void Rename(std::string_view from, std::string to);

  // Rows [begin, end) as exact fp32 into `out` [end - begin, columns]; kTensorTypeUnsupported,
  // kTensorNotFinite or kFileChanged. REQUIRES: a tensor of this source, 0 <= begin <= end <=
  // rows().
  base::Status ExpandRows(const TensorInfo& tensor, int64_t begin, int64_t end, float* out) const;

  void DoneWith(std::string_view name) const override;

  // A 64-bit hash of `config` (config.json's text; empty for a GGUF file, whose metadata are
  // hashed), of what the headers say, the files' sizes and a few samples of each tensor's bytes.
  // Paths and times do not matter.
  uint64_t Fingerprint(std::string_view config) const;

 private:
  WeightSource() = default;
  base::Status AddSafetensors(const std::string& path);
  base::Status AddShards(const std::string& index_path);
  base::Status AddGguf();
  // The tensors of the GGUF file that was opened last, under Hugging Face's names.
  base::Status AddGgufTensors(const std::vector<TensorInfo>& tensors);
  // The other parts of a file in `count` parts, of which path_ is the first.
  base::Status AddGgufParts(uint64_t count);
  // Names and cuts what the files hold otherwise than readers ask for it (expert_tensors.h).
  base::Status NameParts();
  base::Status SortTensors();
  base::Status CheckType(const TensorInfo& tensor) const;
  base::Status NotFinite(const TensorInfo& tensor, int64_t row, int64_t column, float value) const;
  // "FILE: tensor NAME", by the file's own name.
  std::string Label(const TensorInfo& tensor) const;

  std::string path_;
  std::vector<MappedFile> files_;
  std::optional<GgufFile> gguf_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace forebay::weights
