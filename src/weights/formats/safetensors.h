// The safetensors format: 8 bytes of header length (little-endian), a JSON header, then all tensors
// without a gap.
//   {"__metadata__": {"format": "pt"}, "name": {"dtype": "BF16", "shape": [4, 8], "data_offsets":
//   [0, 64]}, ...}
// Offsets count from the end of the header. https://huggingface.co/docs/safetensors
#pragma once

#include <vector>

#include "weights/formats/tensor_info.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kSafetensorsInvalid{"safetensors_invalid"};
inline constexpr base::ErrorCode kSafetensorsTruncated{"safetensors_truncated"};

struct SafetensorsFile {
  std::vector<TensorInfo> tensors;    // in the order of their data
  std::span<const std::byte> header;  // the length field and the JSON
};

// Reads and checks a whole file's header; the result borrows from `bytes`. Tensors of types that
// Forebay cannot compute with are listed all the same. Errors do not name the file.
base::Result<SafetensorsFile> ParseSafetensors(std::span<const std::byte> bytes);

}  // namespace forebay::weights
