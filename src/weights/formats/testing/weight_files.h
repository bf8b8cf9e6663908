// Builders of weight files for tests: small, valid unless told otherwise, then bent by hand.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/testing/temporary_folder.h"

namespace forebay::weights {

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

template <typename T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Length field, header, data.
inline std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  std::string file;
  Append<uint64_t>(&file, header.size());
  return file.append(header).append(data);
}

// A folder with one safetensors file that is put together tensor by tensor.
class SafetensorsFolder {
 public:
  SafetensorsFolder& F32(std::string_view name, std::string_view shape,
                         const std::vector<float>& values) {
    return Add(name, "F32", shape,
               {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  SafetensorsFolder& Add(std::string_view name, std::string_view type, std::string_view shape,
                         std::string_view data) {
    header_ += fmt::format(R"({}"{}": {{"dtype": "{}", "shape": {}, "data_offsets": [{}, {}]}})",
                           header_.empty() ? "" : ", ", name, type, shape, data_.size(),
                           data_.size() + data.size());
    data_ += data;
    return *this;
  }
  // Returns the folder's path.
  std::string Write() {
    folder_.Write("model.safetensors", SafetensorsBytes("{" + header_ + "}", data_));
    return folder_.path();
  }

 private:
  base::TemporaryFolder folder_;
  std::string header_, data_;
};

// GGUF piece by piece:  GgufBytes(tensors, keys).String("a", "b").Tensor("t", {32}, 8, 0).Data(34
// bytes).
class GgufBytes {
 public:
  GgufBytes(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    bytes_ = "GGUF";
    Append(&bytes_, version);
    Append(&bytes_, tensors);
    Append(&bytes_, keys);
  }
  GgufBytes& Text(std::string_view text) {
    Append<uint64_t>(&bytes_, text.size());
    bytes_ += text;
    return *this;
  }
  template <typename T>
  GgufBytes& Raw(T value) {
    Append(&bytes_, value);
    return *this;
  }
  template <typename T>
  GgufBytes& Value(std::string_view key, uint32_t type, T value) {
    return Text(key).Raw(type).Raw(value);
  }
  GgufBytes& String(std::string_view key, std::string_view value) {
    return Text(key).Raw<uint32_t>(8).Text(value);
  }
  // `extents` in the file's order: innermost first.
  GgufBytes& Tensor(std::string_view name, std::initializer_list<uint64_t> extents, uint32_t type,
                    uint64_t offset) {
    Text(name).Raw(static_cast<uint32_t>(extents.size()));
    for (const uint64_t extent : extents) Raw(extent);
    return Raw(type).Raw(offset);
  }
  GgufBytes& Data(std::string_view data, size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    bytes_ += data;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace forebay::weights
