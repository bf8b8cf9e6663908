// The golden data under tests/golden: what Hugging Face says about tiny models.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "testing/test_data.h"
#include "weights/formats/mapped_file.h"
#include "weights/formats/safetensors.h"

namespace forebay::golden {

// FOREBAY_GOLDEN: another folder of this form, for models that are not committed.
inline std::string Path(const std::string& relative) {
  const char* const root = std::getenv("FOREBAY_GOLDEN");
  return (root != nullptr ? root : TestData() + "/golden") + "/" + relative;
}

// The names, or those that FOREBAY_GOLDEN_MODELS lists, with commas between.
inline std::vector<std::string> Models(std::vector<std::string> names) {
  const char* const listed = std::getenv("FOREBAY_GOLDEN_MODELS");
  if (listed == nullptr) return names;
  names.clear();
  std::stringstream list(listed);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

// A safetensors file whose tensors are read whole. FB_CHECKs on anything unexpected: the data is
// ours.
class Tensors {
 public:
  explicit Tensors(const std::string& relative) : file_(Open(relative)) {
    auto parsed = weights::ParseSafetensors(file_.bytes());
    FB_CHECK(parsed.ok(), "{}: {}", relative, parsed.status().ToString());
    parsed_ = std::move(parsed).value();
  }
  bool Has(std::string_view name) const {
    return std::ranges::count(parsed_.tensors, name, &weights::TensorInfo::name) > 0;
  }
  const weights::TensorInfo& Find(std::string_view name) const {
    for (const weights::TensorInfo& tensor : parsed_.tensors) {
      if (tensor.name == name) return tensor;
    }
    base::CheckFailed(__FILE__, __LINE__, "tensor", std::string(name) + " is missing");
  }
  template <typename T>
  std::vector<T> Read(std::string_view name) const {
    const weights::TensorInfo& tensor = Find(name);
    std::vector<T> values(tensor.data.size() / sizeof(T));
    std::memcpy(values.data(), tensor.data.data(), values.size() * sizeof(T));
    return values;
  }
  // Row `row` of an int64 matrix padded with -1, up to `length` entries.
  std::vector<int32_t> Ids(std::string_view name, int64_t row, int64_t length) const {
    const std::vector<int64_t> all = Read<int64_t>(name);
    const int64_t columns = Find(name).columns();
    return {all.begin() + row * columns, all.begin() + row * columns + length};
  }

 private:
  static weights::MappedFile Open(const std::string& relative) {
    auto file = weights::MappedFile::Open(Path(relative));
    FB_CHECK(file.ok(), "{}", file.status().ToString());
    return std::move(file).value();
  }
  weights::MappedFile file_;
  weights::SafetensorsFile parsed_;
};

// A number of a model's meta.json, by keys: Meta("qwen3", {"bf16_compute_vs_fp32", "rms"}).
inline double Meta(const std::string& model, std::initializer_list<const char*> keys) {
  simdjson::dom::parser parser;
  auto parsed = base::ParseJsonFile(parser, Path("models/" + model + "/meta.json"));
  FB_CHECK(parsed.ok(), "{}", parsed.status().ToString());
  simdjson::dom::element element = *parsed;
  for (const char* key : keys) element = element[key];
  return double(element);
}

}  // namespace forebay::golden
