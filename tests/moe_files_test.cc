// Forms in which files hold mixtures of experts: the same weights in another form give the same
// answers, to the byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json.h"
#include "engine/compose.h"
#include "golden_files.h"
#include "runtime/real/real_runtime.h"
#include "tests_support/list_source.h"
#include "weights/formats/expert_tensors.h"
#include "weights/formats/test_files.h"
#include "weights/formats/weight_source.h"

namespace forebay {
namespace {

using weights::TensorInfo;

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
  weights::TemporaryFolder folder_;
  std::string header_, data_;
};

std::string ConfigText(const std::string& name) {
  return *base::ReadFile(golden::Path("models/" + name + "/config.json"));
}

// visit(name, shape, values) for every tensor of a golden model.
template <typename Visit>
void ForEachTensor(const std::string& name, Visit visit) {
  const auto source = weights::WeightSource::Open(golden::Path("models/" + name));
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  for (const TensorInfo& tensor : source->tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
    ASSERT_TRUE(source->ReadRows(tensor.name, 0, tensor.rows(), values.data()).ok());
    visit(tensor.name, tensor.shape, values);
  }
}

// Tokens and digest of a few prompts.
std::vector<std::pair<std::vector<int32_t>, uint64_t>> Answers(const std::string& path,
                                                               const char* dtype) {
  const auto files = engine::OpenModel(path, false, 0);
  FB_CHECK(files.ok(), "{}", files.status().ToString());
  layout::EngineOptions options{.machine = {.dtype = *layout::ParseComputeType(dtype),
                                            .threads = 2,
                                            .memory_bytes = 256 << 20},
                                .limits = {.max_model_len = 256},
                                .digest = true};
  const auto runtime = runtime::CreateRealRuntime();
  auto engine = engine::CreateEngine(*runtime, options, *files, nullptr);
  FB_CHECK(engine.ok(), "{}", engine.status().ToString());
  std::vector<Request> requests(4);
  for (int32_t line = 0; line < 4; ++line) {
    requests[line].id = requests[line].line = line;
    requests[line].prompts.emplace_back();
    for (int32_t i = 0; i < 30 + 25 * line; ++i)
      requests[line].prompts[0].push_back((7 * i + 31 * line) % 250);
    requests[line].sampling = {.temperature = 0, .max_tokens = 12};
    requests[line].sampling.ignore_eos = true;
  }
  std::vector<std::pair<std::vector<int32_t>, uint64_t>> answers(4);
  for (const RequestResult& result : testing_support::RunAll(**engine, requests)) {
    EXPECT_EQ(result.error_message, "");
    answers[static_cast<size_t>(result.id)] = {result.choices[0].tokens, result.choices[0].digest};
  }
  return answers;
}

float OfE4M3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(1 + static_cast<float>(mantissa) / 8, exponent - 7);
  return bits & 128 ? -magnitude : magnitude;
}

uint8_t ToE4M3(float value) {
  uint8_t best = 0;
  for (int bits = 0; bits < 0x7F; ++bits) {
    const auto candidate = static_cast<uint8_t>(bits);
    if (std::abs(OfE4M3(candidate) - std::abs(value)) < std::abs(OfE4M3(best) - std::abs(value)))
      best = candidate;
  }
  return static_cast<uint8_t>(best | (value < 0 ? 128 : 0));
}

// DeepSeek's published form: matrices of attention and feed-forward blocks as F8_E4M3 with a scale
// for each block of 128 x 128, everything else as it is.
TEST(MoeFiles, Fp8GivesWhatTheExpandedWeightsGive) {
  Folder fp8, expanded;
  int scaled = 0;
  ForEachTensor("deepseek-v3", [&](const std::string& name, const tensor::Shape& shape,
                                   std::vector<float> values) {
    const bool quantised = name.ends_with("_proj.weight") || name.ends_with("with_mqa.weight");
    if (!quantised) {
      fp8.AddF32(name, shape, values);
      expanded.AddF32(name, shape, values);
      return;
    }
    const int64_t rows = shape[0], columns = shape[1], across = (columns + 127) / 128;
    std::vector<float> scales(static_cast<size_t>((rows + 127) / 128 * across));
    const auto scale_of = [&](int64_t i) -> float& {
      return scales[static_cast<size_t>(i / columns / 128 * across + i % columns / 128)];
    };
    for (int64_t i = 0; i < rows * columns; ++i)
      scale_of(i) = std::max(scale_of(i), std::abs(values[static_cast<size_t>(i)]) / 448);
    std::string quants;
    for (int64_t i = 0; i < rows * columns; ++i) {
      float& value = values[static_cast<size_t>(i)];
      const uint8_t quant = ToE4M3(value / scale_of(i));
      quants += static_cast<char>(quant);
      value = OfE4M3(quant) * scale_of(i);
    }
    fp8.Add(name, "F8_E4M3", shape, quants);
    fp8.AddF32(name + "_scale_inv", {(rows + 127) / 128, across}, scales);
    expanded.AddF32(name, shape, values);
    ++scaled;
  });
  EXPECT_GT(scaled, 50);
  const std::string config = ConfigText("deepseek-v3");
  std::string quantised = config;
  quantised.insert(quantised.find('{') + 1,
                   R"("quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                      "weight_block_size": [128, 128]},)");
  const std::string fp8_path = fp8.Write(quantised), expanded_path = expanded.Write(config);
  for (const char* dtype : {"float32", "bfloat16"})
    EXPECT_EQ(Answers(fp8_path, dtype), Answers(expanded_path, dtype)) << dtype;
}

// Llama 4's published form: the text's keys in an object of their own, all of its tensors behind a
// prefix, a vision part beside them.
TEST(MoeFiles, ATextPartGivesWhatTheTextModelGives) {
  Folder whole;
  ForEachTensor("llama4-text", [&](const std::string& name, const tensor::Shape& shape,
                                   const std::vector<float>& values) {
    whole.AddF32("language_model." + name, shape, values);
  });
  whole.AddF32("vision_model.patch_embedding.linear.weight", {2, 2}, {1, 2, 3, 4});
  const std::string path =
      whole.Write(R"({"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
                      "vision_config": {"hidden_size": 2}, "text_config": )" +
                  ConfigText("llama4-text") + "}");
  for (const char* dtype : {"float32", "bfloat16"})
    EXPECT_EQ(Answers(path, dtype), Answers(golden::Path("models/llama4-text"), dtype)) << dtype;
}

// Without a low rank of queries they are projected in one step: two matrices whose product is one.
TEST(MoeFiles, QueriesInOneStep) {
  constexpr int64_t kHidden = 64, kRows = 4 * (16 + 8);
  const auto make = [&](bool low_rank) {
    auto folder = std::make_unique<Folder>();
    ForEachTensor("deepseek-v3", [&](const std::string& name, const tensor::Shape& shape,
                                     const std::vector<float>& values) {
      if (name.find(".q_a") != std::string::npos) return;
      if (!name.ends_with("q_b_proj.weight")) return folder->AddF32(name, shape, values);
      const std::string stem = name.substr(0, name.size() - std::string("q_b_proj.weight").size());
      std::vector<float> queries(kRows * kHidden);
      for (size_t i = 0; i < queries.size(); ++i) queries[i] = values[i % values.size()];
      folder->AddF32(stem + "q_proj.weight", {kRows, kHidden}, queries);
    });
    std::string config = ConfigText("deepseek-v3");
    if (!low_rank) config.replace(config.find("\"q_lora_rank\": 40"), 17, "\"q_lora_rank\": null");
    return std::pair{std::move(folder), config};
  };
  auto [folder, config] = make(false);
  const std::string path = folder->Write(config);
  const auto answers = Answers(path, "float32");
  EXPECT_NE(answers[0].second, 0u);
  EXPECT_NE(answers, Answers(golden::Path("models/deepseek-v3"), "float32"));
  // With a rank the tensors of the low rank are asked for.
  auto [other, low_rank] = make(true);
  const auto missing = engine::OpenModel(other->Write(low_rank), false, 0);
  ASSERT_TRUE(missing.ok());
  const auto runtime = runtime::CreateRealRuntime();
  const auto engine =
      engine::CreateEngine(*runtime, {.machine = {.memory_bytes = 256 << 20}}, *missing, nullptr);
  EXPECT_EQ(engine.status().code(), weights::kTensorMissing);
}

}  // namespace
}  // namespace forebay
