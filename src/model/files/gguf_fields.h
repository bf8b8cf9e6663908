// The keys of one architecture in a GGUF file's metadata.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "model/files/config_reader.h"

namespace forebay::model {

// Null: the file has none of that name.
inline const weights::TensorInfo* FindTensor(const weights::GgufFile& gguf, std::string_view name) {
  const auto it =
      std::find_if(gguf.tensors().begin(), gguf.tensors().end(),
                   [&](const weights::TensorInfo& tensor) { return tensor.name == name; });
  return it == gguf.tensors().end() ? nullptr : &*it;
}

// Keys of one architecture. As with JsonFields, the first error is kept and later answers are
// merely valid.
class GgufFields {
 public:
  GgufFields(const weights::GgufFile& gguf, std::string_view architecture, std::string_view file)
      : gguf_(gguf), prefix_(std::string(architecture) + "."), file_(file) {}

  const base::Status& status() const { return status_; }
  bool Has(std::string_view key) {
    asked_.insert(prefix_ + std::string(key));
    return gguf_.Has(prefix_ + std::string(key));
  }
  // The architecture's keys that none of the calls here was about.
  std::vector<std::string_view> Rest() const {
    std::vector<std::string_view> rest;
    for (const std::string_view key : gguf_.keys()) {
      if (key.starts_with(prefix_) && !asked_.contains(std::string(key)))
        rest.push_back(key.substr(prefix_.size()));
    }
    return rest;
  }
  // A key's value, where it is a number or a flag.
  std::optional<double> Number(std::string_view key) const {
    const std::string name = prefix_ + std::string(key);
    if (const auto value = gguf_.GetFloat(name); value.ok()) return *value;
    if (const auto value = gguf_.GetUint(name); value.ok()) return static_cast<double>(*value);
    if (const auto value = gguf_.GetBool(name); value.ok()) return *value ? 1 : 0;
    return std::nullopt;
  }

  int64_t Int(std::string_view key, int64_t least, int64_t most,
              std::optional<int64_t> otherwise = {}) {
    if (!Has(key) && otherwise) return *otherwise;
    const auto value = gguf_.GetUint(prefix_ + std::string(key));
    return Checked(key, value, static_cast<uint64_t>(least), static_cast<uint64_t>(most));
  }

  // An array of whole numbers or flags; empty: the file has no such array, perhaps one value.
  std::vector<int64_t> Ints(std::string_view key) {
    if (!Has(key)) return {};
    const auto values = gguf_.GetInts(prefix_ + std::string(key));
    return values.ok() ? *values : std::vector<int64_t>();
  }

  // A number or a flag as JSON writes it.
  std::string Json(std::string_view key) {
    const std::string name = prefix_ + std::string(key);
    Has(key);
    if (const auto value = gguf_.GetUint(name); value.ok()) return fmt::format("{}", *value);
    if (const auto value = gguf_.GetBool(name); value.ok()) return *value ? "true" : "false";
    const auto value = gguf_.GetFloat(name);
    if (!value.ok()) Fail(value.status().WithContext(file_));
    if (value.ok() && std::isfinite(*value)) return fmt::format("{}", static_cast<float>(*value));
    Invalid(fmt::format("key {} is no finite number", name));
    return "0";
  }

  const weights::TensorInfo* Find(std::string_view tensor) const {
    return FindTensor(gguf_, tensor);
  }

  // Whether a layer has that tensor: "attn_q.bias".
  bool AnyLayerHas(std::string_view tensor) const {
    return std::ranges::any_of(gguf_.tensors(), [&](const weights::TensorInfo& each) {
      const std::string_view name = each.name;
      const size_t layer = name.find('.', 4);
      return name.starts_with("blk.") && layer != std::string_view::npos &&
             name.substr(layer + 1) == tensor;
    });
  }

  double Float(std::string_view key, double least, double most,
               std::optional<double> otherwise = {}) {
    if (!Has(key) && otherwise) return *otherwise;
    return Checked(key, gguf_.GetFloat(prefix_ + std::string(key)), least, most);
  }

  std::string String(std::string_view key, std::string_view otherwise) {
    if (!Has(key)) return std::string(otherwise);
    const auto value = gguf_.GetString(prefix_ + std::string(key));
    if (!value.ok()) Fail(value.status().WithContext(file_));
    return std::string(value.ok() ? *value : otherwise);
  }

  void Fail(base::Status error) {
    if (status_.ok()) status_ = std::move(error);
  }
  void Invalid(std::string_view what) {
    Fail(base::Status(kConfigInvalid, fmt::format("{}: {}", file_, what)));
  }
  void Unsupported(std::string_view key, std::string_view found, std::string_view expected) {
    Fail(base::Status(kConfigUnsupported,
                      fmt::format("{}: key {}{} is {}, which is not supported; supported: {}",
                                  file_, prefix_, key, base::ShownName(found), expected)));
  }

 private:
  template <typename T>
  T Checked(std::string_view key, const base::Result<T>& value, T least, T most) {
    if (!value.ok()) {
      Fail(value.status().WithContext(file_));
      return least;
    }
    if (least <= *value && *value <= most) return *value;
    Invalid(fmt::format("key {}{} is {}; expected {} to {}", prefix_, key, *value, least, most));
    return least;
  }

  const weights::GgufFile& gguf_;
  const std::string prefix_, file_;
  std::set<std::string> asked_;
  base::Status status_;
};

}  // namespace forebay::model
