#include "weights/formats/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/log.h"

namespace forebay::weights {
namespace {

using base::Result;
using base::ShownName;
using base::Status;
namespace ondemand = simdjson::ondemand;

constexpr uint64_t kLengthBytes = 8;
// As the format's own library has it: no garbage is taken for a header of the file's size.
constexpr uint64_t kMostHeaderBytes = 100'000'000;
// "":{"dtype":"U8","shape":[],"data_offsets":[0,0]} and a comma.
constexpr uint64_t kLeastTensorEntryBytes = 50;
static_assert(std::endian::native == std::endian::little,
              "files are little-endian and read as they are");

Status InvalidSafetensors(std::string message) {
  return Status(kSafetensorsInvalid, std::move(message));
}

// A whole array of at most `most` numbers into `out`; its length, or nothing.
std::optional<size_t> ReadNumbers(ondemand::value value, uint64_t* out, size_t most) {
  ondemand::array array;
  if (value.get_array().get(array)) return std::nullopt;
  size_t count = 0;
  for (auto element : array) {
    if (count == most || element.get_uint64().get(out[count])) return std::nullopt;
    ++count;
  }
  return count;
}

Status CheckSize(const TensorInfo& tensor, std::span<const uint64_t> extents,
                 const uint64_t (&range)[2], uint64_t data_bytes) {
  if (range[0] > range[1]) {
    return InvalidSafetensors(fmt::format("tensor {}: data_offsets [{}, {}] run backwards",
                                          ShownName(tensor.name), range[0], range[1]));
  }
  if (range[1] > data_bytes) {
    return Status(
        kSafetensorsTruncated,
        fmt::format("tensor {}: data_offsets [{}, {}] end beyond the {} bytes of data in the file",
                    ShownName(tensor.name), range[0], range[1], data_bytes));
  }
  if (tensor.type == &kUnreadableType) return Status::Ok();
  const std::optional<uint64_t> expected = StoredBytes(*tensor.type, extents);
  if (!expected)
    return InvalidSafetensors(
        fmt::format("tensor {}: the size of its shape overflows", ShownName(tensor.name)));
  if (*expected != range[1] - range[0]) {
    return InvalidSafetensors(fmt::format("tensor {}: {} bytes of data; {} {} needs {}",
                                          ShownName(tensor.name), range[1] - range[0],
                                          tensor.type->name, tensor.shape.ToString(), *expected));
  }
  return Status::Ok();
}

Result<TensorInfo> ReadTensor(std::string name, ondemand::value value,
                              std::span<const std::byte> data) {
  TensorInfo tensor;
  tensor.name = std::move(name);
  ondemand::object object;
  if (value.get_object().get(object))
    return InvalidSafetensors(fmt::format("tensor {}: expected an object", ShownName(tensor.name)));
  constexpr size_t kMostExtents = 64;  // of a tensor that is not read, but is well-formed
  uint64_t extents[kMostExtents];
  uint64_t range[2];
  std::optional<size_t> rank, ends;
  for (auto field : object) {
    std::string_view key;
    ondemand::value entry;
    if (field.unescaped_key().get(key) || field.value().get(entry)) {
      return InvalidSafetensors(
          fmt::format("tensor {}: its entry is no valid JSON", ShownName(tensor.name)));
    }
    if (key == "dtype" && tensor.type == nullptr) {
      std::string_view type;
      if (entry.get_string().get(type))
        return InvalidSafetensors(
            fmt::format("tensor {}: dtype is no string", ShownName(tensor.name)));
      tensor.type = FindSafetensorsType(type);
      if (tensor.type == nullptr) {
        tensor.type = &kUnreadableType;
        tensor.why = fmt::format("dtype {}, which is not known here", ShownName(type));
      }
    } else if (key == "shape" && !rank) {
      rank = ReadNumbers(entry, extents, std::size(extents));
      if (!rank) {
        return InvalidSafetensors(
            fmt::format("tensor {}: shape is no array of at most {} non-negative integers",
                        ShownName(tensor.name), std::size(extents)));
      }
    } else if (key == "data_offsets" && !ends) {
      ends = ReadNumbers(entry, range, 2);
      if (ends != 2)
        return InvalidSafetensors(
            fmt::format("tensor {}: data_offsets is no pair of integers", ShownName(tensor.name)));
    } else {
      return InvalidSafetensors(fmt::format(
          "tensor {}: key {} is unknown or given twice; expected dtype, shape, data_offsets",
          ShownName(tensor.name), ShownName(key)));
    }
  }
  if (tensor.type == nullptr || !rank || !ends) {
    return InvalidSafetensors(
        fmt::format("tensor {}: dtype, shape or data_offsets is missing", ShownName(tensor.name)));
  }
  if (*rank > tensor::Shape::kMaxRank) {
    tensor.type = &kUnreadableType;
    tensor.why =
        fmt::format("{} extents; at most {} are supported", *rank, tensor::Shape::kMaxRank);
  }
  if (tensor.type != &kUnreadableType) tensor.shape = MakeShape({extents, *rank});
  FB_RETURN_IF_ERROR(CheckSize(tensor, {extents, *rank}, range, data.size()));
  tensor.data = data.subspan(range[0], range[1] - range[0]);
  return tensor;
}

// `__metadata__` is free text that nothing here depends on; it must still be what the format says.
Status CheckMetadata(ondemand::value value) {
  ondemand::object object;
  if (value.get_object().get(object)) return InvalidSafetensors("__metadata__ is no object");
  for (auto field : object) {
    std::string_view key, text;
    if (field.unescaped_key().get(key) || field.value().get_string().get(text)) {
      return InvalidSafetensors("__metadata__ holds something that is no string");
    }
  }
  return Status::Ok();
}

// Tensors in the order of their data must follow each other without gap or overlap up to the end of
// the file.
Status CheckLayout(std::vector<TensorInfo>* tensors, std::span<const std::byte> data) {
  std::sort(tensors->begin(), tensors->end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  const std::byte* end = data.data();
  for (const TensorInfo& tensor : *tensors) {
    if (tensor.data.data() != end) {
      return InvalidSafetensors(
          fmt::format("tensor {}: its data begin at {}, but those before end at {}",
                      ShownName(tensor.name), tensor.data.data() - data.data(), end - data.data()));
    }
    end = tensor.data.data() + tensor.data.size();
  }
  if (end != data.data() + data.size()) {
    return InvalidSafetensors(
        fmt::format("{} bytes of data, but the tensors end at {}", data.size(), end - data.data()));
  }
  return Status::Ok();
}

}  // namespace

Result<SafetensorsFile> ParseSafetensors(std::span<const std::byte> bytes) {
  uint64_t header_bytes = 0;
  if (bytes.size() < kLengthBytes) {
    return Status(kSafetensorsTruncated,
                  fmt::format("{} bytes; a header needs {}", bytes.size(), kLengthBytes));
  }
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (header_bytes > bytes.size() - kLengthBytes) {
    return Status(kSafetensorsTruncated,
                  fmt::format("the header says that it has {} bytes; the file has {} in all",
                              header_bytes, bytes.size()));
  }
  if (header_bytes > kMostHeaderBytes) {
    return InvalidSafetensors(
        fmt::format("the header says that it has {} bytes; expected at most {}", header_bytes,
                    kMostHeaderBytes));
  }
  SafetensorsFile file;
  file.header = bytes.subspan(0, kLengthBytes + header_bytes);
  const std::span<const std::byte> data = bytes.subspan(file.header.size());

  // The on-demand parser takes half the memory of a DOM, which keeps a header of many tiny tensors
  // in bounds.
  const simdjson::padded_string json(reinterpret_cast<const char*>(bytes.data() + kLengthBytes),
                                     header_bytes);
  ondemand::parser parser;
  ondemand::document document;
  ondemand::object object;
  if (parser.iterate(json).get(document) || document.get_object().get(object)) {
    return InvalidSafetensors("the header is no JSON object");
  }
  file.tensors.reserve(header_bytes / kLeastTensorEntryBytes + 1);
  for (auto field : object) {
    std::string_view key;
    ondemand::value value;
    if (field.unescaped_key().get(key) || field.value().get(value))
      return InvalidSafetensors("the header is no valid JSON");
    if (key == "__metadata__") {
      FB_RETURN_IF_ERROR(CheckMetadata(value));
    } else {
      FB_ASSIGN_OR_RETURN(TensorInfo tensor, ReadTensor(std::string(key), value, data));
      file.tensors.push_back(std::move(tensor));
    }
  }
  if (document.current_location().error() != simdjson::OUT_OF_BOUNDS) {
    return InvalidSafetensors("something follows the header's JSON object");
  }
  FB_RETURN_IF_ERROR(CheckLayout(&file.tensors, data));
  return file;
}

}  // namespace forebay::weights
