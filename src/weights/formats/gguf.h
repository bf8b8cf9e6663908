// The GGUF format, versions 2 and 3, little-endian: typed metadata, tensor descriptions, then
// aligned tensor data.
//   "GGUF" u32 version u64 tensors u64 entries | entries | descriptions | padding | data
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <string_view>
#include <vector>

#include "weights/formats/tensor_info.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kGgufInvalid{"gguf_invalid"};
inline constexpr base::ErrorCode kGgufTruncated{"gguf_truncated"};
inline constexpr base::ErrorCode kGgufVersionUnsupported{"gguf_version_unsupported"};
inline constexpr base::ErrorCode kGgufKeyMissing{"gguf_key_missing"};
inline constexpr base::ErrorCode kGgufKeyType{"gguf_key_type"};

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// A file's metadata and tensors; borrows the file's bytes. Thread-safe. Values stay in the file
// until they are asked for; getters return kGgufKeyMissing or kGgufKeyType errors that name the
// key, what was found and expected.
class GgufFile {
 public:
  // Reads and checks everything but the tensors' data. Errors do not name the file.
  static base::Result<GgufFile> Parse(std::span<const std::byte> bytes);

  std::vector<std::string_view> keys() const;  // sorted
  bool Has(std::string_view key) const { return FindEntry(key) != nullptr; }
  base::Result<bool> GetBool(std::string_view key) const;
  // Any integer type that holds a value >= 0.
  base::Result<uint64_t> GetUint(std::string_view key) const;
  // F32 or F64.
  base::Result<double> GetFloat(std::string_view key) const;
  base::Result<std::string_view> GetString(std::string_view key) const;
  base::Result<std::vector<std::string_view>> GetStrings(std::string_view key) const;
  // An array of any integer type, or of booleans.
  base::Result<std::vector<int64_t>> GetInts(std::string_view key) const;
  // An array of F32 or F64.
  base::Result<std::vector<double>> GetFloats(std::string_view key) const;

  // Names as in the file, extents in HF's order (reversed against the file), in the order of the
  // file.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // Everything before the tensors' data.
  std::span<const std::byte> header() const { return header_; }

 private:
  struct Entry {
    std::string_view key;
    GgufType type;
    GgufType element;          // an array's element type
    uint64_t count;            // 1 unless an array
    const std::byte* payload;  // the value, or the first element
  };
  class Reader;

  base::Status ReadEntries(Reader* reader, uint64_t count);
  base::Status ReadTensors(Reader* reader, uint64_t count, std::span<const std::byte> bytes);
  const Entry* FindEntry(std::string_view key) const;
  // An entry of `count` values, `expected` words for the message, if `accepts` its element type.
  base::Result<const Entry*> Require(std::string_view key, bool array, std::string_view expected,
                                     bool (*accepts)(GgufType)) const;

  std::vector<Entry> entries_;  // sorted by key
  std::vector<TensorInfo> tensors_;
  std::span<const std::byte> header_;
};

}  // namespace forebay::weights
