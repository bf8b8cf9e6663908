// Golden models in other forms, and what they answer: the same weights in another form give the
// same answers, to the byte.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "choose/create_engine.h"
#include "runtime/real/real_runtime.h"
#include "testing/golden_files.h"
#include "testing/list_source.h"
#include "weights/formats/testing/weight_files.h"
#include "weights/formats/weight_source.h"

namespace forebay::testing_support {

// A model's folder that is put together tensor by tensor.
class Folder {
 public:
  void Add(std::string_view name, std::string_view type, const tensor::Shape& shape,
           std::string_view data) {
    std::string extents;
    for (int i = 0; i < shape.rank(); ++i) extents += fmt::format("{}{}", i ? ", " : "", shape[i]);
    header_ += fmt::format(R"({}"{}": {{"dtype": "{}", "shape": [{}], "data_offsets": [{}, {}]}})",
                           header_.empty() ? "" : ", ", name, type, extents, data_.size(),
                           data_.size() + data.size());
    data_ += data;
  }
  void AddF32(std::string_view name, const tensor::Shape& shape, const std::vector<float>& values) {
    Add(name, "F32", shape,
        {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  std::string Write(std::string_view config) {
    folder_.Write("config.json", config);
    folder_.Write("model.safetensors", weights::SafetensorsBytes("{" + header_ + "}", data_));
    return folder_.path();
  }

 private:
  base::TemporaryFolder folder_;
  std::string header_, data_;
};

inline std::string ConfigText(const std::string& name) {
  return *base::ReadFile(golden::Path("models/" + name + "/config.json"));
}

// visit(name, shape, values) for every tensor of a golden model.
template <typename Visit>
void ForEachTensor(const std::string& name, Visit visit) {
  const auto source = weights::WeightSource::Open(golden::Path("models/" + name));
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  for (const weights::TensorInfo& tensor : source->tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
    ASSERT_TRUE(source->ReadRows(tensor.name, 0, tensor.rows(), values.data()).ok());
    visit(tensor.name, tensor.shape, values);
  }
}

inline std::vector<RequestResult> Results(const std::string& path, tensor::DType dtype,
                                          const std::vector<Request>& requests,
                                          layout::EngineOptions options = {}) {
  const auto files = engine::OpenModel(path, false, 0);
  FB_CHECK(files.ok(), "{}", files.status().ToString());
  options.machine.dtype = dtype;
  options.machine.threads = 2;
  options.machine.memory_bytes = 256 << 20;
  options.limits.max_model_len = std::min<int64_t>(256, files->config.max_position_embeddings);
  options.digest = true;
  const auto runtime = runtime::CreateRealRuntime();
  auto engine = choose::CreateEngine(*runtime, options, *files, nullptr);
  FB_CHECK(engine.ok(), "{}", engine.status().ToString());
  std::vector<RequestResult> results = RunAll(**engine, requests);
  std::ranges::sort(results, {}, &RequestResult::id);
  return results;
}

inline std::vector<Request> FourRequests(int32_t vocabulary = 250) {
  std::vector<Request> requests(4);
  for (int32_t line = 0; line < 4; ++line) {
    requests[line].id = requests[line].line = line;
    requests[line].prompts.emplace_back();
    for (int32_t i = 0; i < 30 + 25 * line; ++i)
      requests[line].prompts[0].push_back((7 * i + 31 * line) % vocabulary);
    requests[line].sampling = {.temperature = 0, .max_tokens = 12};
    requests[line].sampling.ignore_eos = true;
  }
  return requests;
}

// Tokens and digest of a few prompts.
inline std::vector<std::pair<std::vector<int32_t>, uint64_t>> AnswersOf(
    const std::string& path, tensor::DType dtype, const layout::EngineOptions& options = {},
    int32_t vocabulary = 250) {
  std::vector<std::pair<std::vector<int32_t>, uint64_t>> answers;
  for (const RequestResult& result : Results(path, dtype, FourRequests(vocabulary), options)) {
    EXPECT_EQ(result.error_message, "");
    answers.emplace_back(result.choices[0].tokens, result.choices[0].digest);
  }
  return answers;
}

}  // namespace forebay::testing_support
