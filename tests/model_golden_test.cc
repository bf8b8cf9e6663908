// Every supported model against Hugging Face: logits at every position in fp32 and bf16 compute, and greedy tokens
// through the whole engine.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/compose.h"
#include "golden_files.h"
#include "runtime/real/real_runtime.h"
#include "tests_support/list_source.h"

namespace forebay {
namespace {

constexpr int64_t kRows = 48;  // rows of a step: prompts are computed in several chunks

struct Loaded {
  engine::ModelFiles files;
  std::unique_ptr<runtime::Runtime> runtime;
  std::unique_ptr<engine::Rank> rank;
  engine::MemoryPlan plan;
};

Loaded Load(const std::string& path, tensor::DType dtype) {
  Loaded loaded;
  auto files = engine::OpenModel(golden::Path(path), false, 0);
  FB_CHECK(files.ok(), "{}", files.status().ToString());
  loaded.files = std::move(files).value();
  loaded.runtime = runtime::CreateRealRuntime();
  auto device = device::CreateCpuDevice(*loaded.runtime, {.memory_bytes = 256 << 20, .num_workers = 2});
  FB_CHECK(device.ok(), "{}", device.status().ToString());
  engine::MemoryRequest request{.budget_bytes = 128 << 20, .max_model_len = 512, .max_num_seqs = 2,
                                .max_num_batched_tokens = kRows};
  auto plan = engine::PlanMemory(loaded.files.config, dtype, request);
  FB_CHECK(plan.ok(), "{}", plan.status().ToString());
  loaded.plan = *plan;
  const kernels::KernelSet* kernels = *kernels::ChooseKernels("auto");
  auto rank = engine::Rank::Create(std::move(device).value(), loaded.files.config, loaded.plan, 2, false, *kernels,
                                   loaded.files.reader.get(), 2);
  FB_CHECK(rank.ok(), "{}", rank.status().ToString());
  loaded.rank = std::move(rank).value();
  return loaded;
}

// Logits [tokens, vocab] of every position, in steps of at most kRows rows.
std::vector<float> AllLogits(Loaded& loaded, const std::vector<int32_t>& tokens) {
  const auto vocab = static_cast<size_t>(loaded.files.config.vocab_size);
  engine::StepBuffers& buffers = loaded.rank->buffers();
  std::vector<int32_t> blocks;
  for (int32_t b = 0; b * kernels::kBlockTokens < static_cast<int32_t>(tokens.size()); ++b) blocks.push_back(b);
  for (size_t group = 0; group < loaded.plan.kv_groups.size(); ++group) {
    buffers.SetTable(static_cast<int>(group), 0, 0, blocks);
  }
  std::vector<float> logits;
  for (size_t begin = 0; begin < tokens.size(); begin += kRows) {
    const size_t count = std::min<size_t>(kRows, tokens.size() - begin);
    buffers.Begin();
    buffers.Add({.tokens = std::span(tokens).subspan(begin, count), .first_position = static_cast<int64_t>(begin), .slot = 0,
                 .all_logits = true, .last_logits = false});
    std::vector<engine::LogitTask> tasks(count);
    loaded.rank->EnqueueStep(&tasks);
    FB_CHECK(loaded.rank->WaitStep(runtime::kForever).ok(), "the step failed");
    const float* rows = loaded.rank->decoder().activations.logits;
    logits.insert(logits.end(), rows, rows + count * vocab);
  }
  return logits;
}

// Checks every position of one sequence; adds to the sum of squared differences and their number.
void Compare(const std::vector<float>& ours, const float* reference, size_t vocab, bool every_position, double* squares,
             int64_t* count) {
  for (size_t row = 0; row * vocab < ours.size(); ++row) {
    double difference = 0, norm = 0;
    for (size_t v = 0; v < vocab; ++v) {
      const double r = reference[row * vocab + v], d = ours[row * vocab + v] - r;
      difference += d * d;
      norm += r * r;
    }
    if (every_position) {
      ASSERT_LE(std::sqrt(difference / norm), 1e-4) << "position " << row;
    }
    *squares += difference;
    *count += static_cast<int64_t>(vocab);
  }
}

class GoldenModel : public testing::TestWithParam<const char*> {};

// RMS of the difference over all logits of the model's sequences.
double CompareSequences(const std::string& name, tensor::DType dtype, bool every_position) {
  const golden::Tensors golden("models/" + name + "/golden.safetensors");
  Loaded loaded = Load("models/" + name, dtype);
  const auto vocab = static_cast<size_t>(loaded.files.config.vocab_size);
  const auto lengths = golden.Read<int64_t>("lengths");
  const auto reference = golden.Read<float>("logits");
  const float* at = reference.data();
  double squares = 0;
  int64_t count = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    SCOPED_TRACE("sequence " + std::to_string(i));
    Compare(AllLogits(loaded, golden.Ids("input_ids", i, lengths[i])), at, vocab, every_position, &squares, &count);
    at += lengths[i] * vocab;
  }
  return std::sqrt(squares / static_cast<double>(count));
}

TEST_P(GoldenModel, Fp32LogitsAgreeAtEveryPosition) { CompareSequences(GetParam(), tensor::DType::kF32, true); }

TEST_P(GoldenModel, Bf16LogitsAreAsCloseAsTheReferencesOwn) {
  const std::string name = GetParam();
  const double rms = CompareSequences(name, tensor::DType::kBF16, false);
  const double own = golden::Meta(name, {"bf16_compute_vs_fp32", "rms"});
  std::printf("%-14s rms %.4f, the reference's own %.4f (ratio %.2f)\n", name.c_str(), rms, own, rms / own);
  EXPECT_LE(rms, 1.1 * own);
  EXPECT_GT(rms, 0.05 * own) << "too good: was fp32 compute used?";
}

// Greedy tokens of the three prompts through the engine with continuous batching, all at once.
void CheckGreedy(const std::string& model_path, const golden::Tensors& golden) {
  auto files = engine::OpenModel(golden::Path(model_path), false, 0);
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  engine::EngineOptions options;
  options.dtype = "float32";
  options.memory_bytes = 256 << 20;
  options.max_model_len = 256;
  options.max_num_batched_tokens = 40;
  options.threads = 2;
  const auto runtime = runtime::CreateRealRuntime();
  auto engine = engine::CreateEngine(*runtime, options, *files, nullptr);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();

  const auto lengths = golden.Read<int64_t>("greedy_prompt_lengths");
  const int64_t steps = golden.Find("greedy").columns();
  std::vector<Request> requests;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Request request;
    request.line = static_cast<int64_t>(i);
    request.prompts = {golden.Ids("greedy_prompt_ids", i, lengths[i])};
    request.sampling.temperature = 0;
    request.sampling.max_tokens = static_cast<int32_t>(steps);
    request.sampling.ignore_eos = true;
    requests.push_back(request);
  }
  const std::vector<RequestResult> results = testing_support::RunAll(**engine, requests);
  ASSERT_EQ(results.size(), requests.size());
  for (const RequestResult& result : results) {
    ASSERT_EQ(result.error_message, "");
    EXPECT_EQ(result.choices[0].tokens, golden.Ids("greedy", result.line, steps)) << "prompt " << result.line;
    EXPECT_EQ(result.choices[0].finish_reason, FinishReason::kLength);
  }
}

TEST_P(GoldenModel, GreedyTokensAreTheSame) {
  const std::string name = GetParam();
  CheckGreedy("models/" + name, golden::Tensors("models/" + name + "/golden.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenModel,
                         testing::Values("llama2-mha", "llama3-gqa", "mistral", "qwen2", "qwen2-tied", "qwen3",
                                         "smollm2-like", "yarn-qwen2.5"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

class GoldenGguf : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(GoldenGguf, Fp32LogitsAgreeAtEveryPosition) {
  const auto [model, type] = GetParam();
  const std::string stem = std::string("gguf/") + model + "-" + type;
  Loaded loaded = Load(stem + ".gguf", tensor::DType::kF32);
  const auto vocab = static_cast<size_t>(loaded.files.config.vocab_size);
  const bool quantised = std::string_view(type)[0] == 'Q';
  double squares = 0;
  int64_t count = 0;
  if (quantised) {
    const golden::Tensors golden(stem + ".golden.safetensors");
    const auto ids = golden.Read<int64_t>("input_ids");
    const auto reference = golden.Read<float>("logits");
    Compare(AllLogits(loaded, {ids.begin(), ids.end()}), reference.data(), vocab, true, &squares, &count);
    return;
  }
  const golden::Tensors golden(std::string("models/") + model + "/golden.safetensors");
  const auto lengths = golden.Read<int64_t>("lengths");
  const auto reference = golden.Read<float>("logits");
  Compare(AllLogits(loaded, golden.Ids("input_ids", 0, lengths[0])), reference.data(), vocab, true, &squares, &count);
  CheckGreedy(stem + ".gguf", golden);
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenGguf,
                         testing::Combine(testing::Values("llama3-gqa", "qwen3"),
                                          testing::Values("F32", "F16", "BF16", "Q8_0", "Q4_1")),
                         [](const auto& info) {
                           std::string name = std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace forebay
