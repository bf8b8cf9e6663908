// Forms in which files hold mixtures of experts: the same weights in another form give the same
// answers, to the byte. And files whose numbers overflow in a router.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json.h"
#include "choose/create_engine.h"
#include "runtime/real/real_runtime.h"
#include "testing/answers.h"
#include "weights/formats/expert_tensors.h"
#include "weights/formats/testing/weight_files.h"
#include "weights/formats/weight_source.h"

namespace forebay {
namespace {

using testing_support::AnswersOf;
using testing_support::ConfigText;
using testing_support::Folder;
using testing_support::ForEachTensor;
using testing_support::FourRequests;
using testing_support::Results;
using weights::TensorInfo;

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
  for (const tensor::DType dtype : {tensor::DType::kF32, tensor::DType::kBF16}) {
    testing::internal::CaptureStderr();
    const auto answers = AnswersOf(fp8_path, dtype);
    EXPECT_NE(testing::internal::GetCapturedStderr().find(fmt::format(
                  "{}: {} matrices are quantised with their inputs in mind", fp8_path, scaled)),
              std::string::npos);
    EXPECT_EQ(answers, AnswersOf(expanded_path, dtype)) << static_cast<int>(dtype);
  }
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
  testing::internal::CaptureStderr();
  EXPECT_TRUE(engine::OpenModel(path, false, 0).ok());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("the text part is loaded, images are not"),
            std::string::npos);
  for (const tensor::DType dtype : {tensor::DType::kF32, tensor::DType::kBF16})
    EXPECT_EQ(AnswersOf(path, dtype), AnswersOf(golden::Path("models/llama4-text"), dtype))
        << static_cast<int>(dtype);
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
  const auto answers = AnswersOf(path, tensor::DType::kF32);
  EXPECT_NE(answers[0].second, 0u);
  EXPECT_NE(answers, AnswersOf(golden::Path("models/deepseek-v3"), tensor::DType::kF32));
  // With a rank the tensors of the low rank are asked for.
  auto [other, low_rank] = make(true);
  const auto missing = engine::OpenModel(other->Write(low_rank), false, 0);
  ASSERT_TRUE(missing.ok());
  const auto runtime = runtime::CreateRealRuntime();
  const auto engine =
      choose::CreateEngine(*runtime, {.machine = {.memory_bytes = 256 << 20}}, *missing, nullptr);
  EXPECT_EQ(engine.status().code(), weights::kTensorMissing);
}

// A router so skewed that one expert gets every row, one expert a row, and all of them: the same
// digests alone, together, and where experts are pulled or rows shipped.
TEST(MoeFiles, AnySpreadOfRowsGivesTheSameDigests) {
  const std::string golden = ConfigText("deepseek-v3");
  const auto with = [&](std::string text, const std::string& from, const std::string& to) {
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return text.replace(text.find(from), from.size(), to);
  };
  const std::string one =
                        with(golden, R"("num_experts_per_tok": 3)", R"("num_experts_per_tok": 1)"),
                    all = with(
                        with(golden, R"("num_experts_per_tok": 3)", R"("num_experts_per_tok": 8)"),
                        R"("topk_group": 2)", R"("topk_group": 4)");
  for (const auto& [config, bias] :
       {std::pair{&golden, 100.0f}, std::pair{&one, 100.0f}, {&one, 0.0f}, {&all, 0.0f}}) {
    Folder folder;
    const float more = bias;
    ForEachTensor("deepseek-v3", [&](const std::string& name, const tensor::Shape& shape,
                                     std::vector<float> values) {
      if (name.ends_with("e_score_correction_bias")) values[5] += more;
      folder.AddF32(name, shape, values);
    });
    const std::string path = folder.Write(*config);
    layout::EngineOptions options;
    options.limits.max_num_seqs = 1;
    const auto alone = AnswersOf(path, tensor::DType::kBF16, options);
    for (const auto& [layout, mode] :
         {std::pair{"", "auto"}, std::pair{"dp=2,experts=by_expert", "pull"},
          std::pair{"dp=2,experts=by_expert", "ship"}}) {
      options.limits.max_num_seqs = 4;
      options.limits.max_num_batched_tokens = 48;
      if (*layout != 0) {
        options.machine.devices = *layout::ParseDevices("2xcpu");
        options.layout = *layout::ParseLayout(layout);
      }
      options.ship.mode = *schedule::ParseWantedMode(mode);
      EXPECT_EQ(AnswersOf(path, tensor::DType::kBF16, options), alone)
          << layout << " " << mode << " " << bias;
    }
  }
}

// What is wrong with one expert's tensor is said with the file and the tensor, which names layer
// and expert.
TEST(MoeFiles, ABadTensorOfAnExpertIsNamed) {
  struct Damage {
    const char* what;
    base::ErrorCode code;
    const char* found;
  };
  const std::string bad = "model.layers.1.mlp.experts.5.up_proj.weight";
  for (const Damage& damage :
       {Damage{"missing", weights::kTensorMissing, "is missing"},
        Damage{"misshapen", weights::kTensorShape, "asks for [32, 64]"},
        Damage{"not finite", weights::kTensorNotFinite, "row 2, column 3 is inf"}}) {
    Folder folder;
    ForEachTensor("qwen3-moe",
                  [&](const std::string& name, tensor::Shape shape, std::vector<float> values) {
                    const bool damaged = name == bad;
                    if (damaged && damage.code == weights::kTensorMissing) return;
                    if (damaged && damage.code == weights::kTensorShape)
                      shape = {shape[1], shape[0]};
                    if (damaged && damage.code == weights::kTensorNotFinite)
                      values[static_cast<size_t>(2 * shape[1] + 3)] = INFINITY;
                    folder.AddF32(name, shape, values);
                  });
    const std::string path = folder.Write(ConfigText("qwen3-moe"));
    const auto files = engine::OpenModel(path, false, 0);
    ASSERT_TRUE(files.ok()) << files.status().ToString();
    const auto runtime = runtime::CreateRealRuntime();
    const base::Status status =
        choose::CreateEngine(*runtime, {.machine = {.memory_bytes = 256 << 20}}, *files, nullptr)
            .status();
    EXPECT_EQ(status.code(), damage.code) << damage.what;
    for (const std::string& part : {path, bad, std::string(damage.found)})
      EXPECT_NE(status.message().find(part), std::string::npos)
          << damage.what << ": " << status.message();
  }
}

// Finite weights of which one overflows: the first column of the residual stream is 0, but for one
// token, which the planted row of a matrix multiplies to infinity. The softmax of a router's scores
// makes NaN of it, and so does the norm after an attention that has it.
constexpr int32_t kOverflowing = 251;
std::string OverflowingModel(const std::string& name, const std::string& planted, Folder* folder) {
  int found = 0;
  ForEachTensor(
      name, [&](const std::string& tensor, const tensor::Shape& shape, std::vector<float> values) {
        const auto columns = static_cast<size_t>(shape[shape.rank() - 1]);
        if (tensor.ends_with("embed_tokens.weight")) {
          for (size_t token = 0; token < static_cast<size_t>(shape[0]); ++token)
            values[token * columns] = token == kOverflowing ? 100.0f : 0.0f;
        } else if (tensor.ends_with("o_proj.weight") || tensor.ends_with("down_proj.weight")) {
          std::fill_n(values.begin(), columns, 0.0f);
        } else if (tensor.ends_with(planted)) {
          values[0] = 3e38f;
          ++found;
        }
        folder->AddF32(tensor, shape, values);
      });
  EXPECT_EQ(found, 1) << name;
  return folder->Write(ConfigText(name));
}

TEST(MoeFiles, ANaNInARouterRowEndsItsRequestAlone) {
  for (const auto& [name, planted] :
       {std::pair{"qwen3-moe", "layers.0.mlp.gate.weight"},
        std::pair{"mixtral", "layers.0.block_sparse_moe.gate.weight"},
        std::pair{"deepseek-v3", "layers.0.self_attn.kv_a_proj_with_mqa.weight"},
        std::pair{"llama4-text", "layers.0.self_attn.v_proj.weight"}}) {
    Folder folder;
    const std::string path = OverflowingModel(name, planted, &folder);
    std::vector<Request> requests = FourRequests();
    // So few that none of them draws the token itself.
    for (Request& request : requests) request.sampling.max_tokens = 6;
    const std::vector<RequestResult> expected = Results(path, tensor::DType::kBF16, requests);
    for (const RequestResult& each : expected) ASSERT_EQ(each.error_message, "") << name;
    // In the middle of a prompt of several choices, and in the last row of one whose rows alone are
    // wanted.
    requests[1].prompts[0][3] = kOverflowing;
    requests[1].n = 3;
    requests[1].sampling.temperature = 1;
    requests[3].prompts[0].end()[-2] = kOverflowing;
    requests[3].sampling.max_tokens = 0;
    requests[3].sampling.prompt_logprobs = 2;
    for (const auto& [devices, layout, mode] :
         {std::tuple{"cpu", "", "auto"}, std::tuple{"2xcpu", "pp=2", "auto"},
          std::tuple{"2xcpu", "dp=2,experts=by_expert", "pull"},
          std::tuple{"2xcpu", "dp=2,experts=by_expert", "ship"}}) {
      layout::EngineOptions options;
      options.machine.devices = *layout::ParseDevices(devices);
      if (*layout != 0) options.layout = *layout::ParseLayout(layout);
      options.ship.mode = *schedule::ParseWantedMode(mode);
      const auto results = Results(path, tensor::DType::kBF16, requests, options);
      ASSERT_EQ(results.size(), 4u);
      for (const size_t bad : {1u, 3u}) {
        EXPECT_EQ(results[bad].error_code, "logits_nan") << name << " " << layout << " " << bad;
        EXPECT_EQ(results[bad].http_status, 500);
        EXPECT_TRUE(results[bad].choices.empty());
      }
      for (const size_t good : {0u, 2u}) {
        ASSERT_EQ(results[good].error_message, "") << name << " " << layout;
        EXPECT_EQ(results[good].choices[0].tokens, expected[good].choices[0].tokens);
        EXPECT_EQ(results[good].choices[0].digest, expected[good].choices[0].digest);
      }
    }
  }
}

}  // namespace
}  // namespace forebay
