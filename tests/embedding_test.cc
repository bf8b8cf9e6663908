// Vectors of prompts against sentence-transformers' of tiny models, and the same bits however they
// are computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "choose/create_engine.h"
#include "runtime/real/real_runtime.h"
#include "testing/golden_files.h"
#include "testing/list_source.h"

namespace forebay {
namespace {

using Vectors = std::vector<std::vector<float>>;

struct Asked {
  std::string model = "qwen3-embed", pooling = "auto", devices = "cpu", layout;
  tensor::DType dtype = tensor::DType::kBF16;
  bool prefix_caching = true;
  int32_t rows = 2048;
  const char* policy = "continuous";
};

std::unique_ptr<engine::LocalEngine> Open(runtime::Runtime& runtime, const Asked& asked) {
  auto files = engine::OpenModel(golden::Path("models/" + asked.model), false, 0);
  FB_CHECK(files.ok(), "{}", files.status().ToString());
  FB_CHECK(engine::SetPooling(asked.pooling, &*files).ok(), "{}", asked.pooling);
  layout::EngineOptions options;
  options.machine.memory_bytes = 256 << 20;
  options.machine.dtype = asked.dtype;
  options.machine.devices = *layout::ParseDevices(asked.devices);
  if (!asked.layout.empty()) options.layout = *layout::ParseLayout(asked.layout);
  options.prefix_caching = asked.prefix_caching;
  options.limits.max_model_len = 128;
  options.limits.max_num_batched_tokens = asked.rows;
  options.policy = *schedule::FindPolicy(asked.policy);
  auto engine = choose::CreateEngine(runtime, options, *files, nullptr);
  FB_CHECK(engine.ok(), "{}", engine.status().ToString());
  return std::move(*engine);
}

Request Pooled(int64_t id, std::vector<std::vector<int32_t>> prompts) {
  Request request;
  request.id = request.line = id;
  request.prompts = std::move(prompts);
  request.sampling.max_tokens = 0;
  request.pooled = true;
  return request;
}

// The golden file's prompts.
std::vector<std::vector<int32_t>> Prompts(const golden::Tensors& golden) {
  std::vector<std::vector<int32_t>> prompts;
  for (const int64_t length : golden.Read<int64_t>("lengths"))
    prompts.push_back(golden.Ids("input_ids", std::ssize(prompts), length));
  return prompts;
}

Vectors VectorsOf(engine::LocalEngine& engine, std::vector<Request> requests) {
  auto results = testing_support::RunAll(engine, std::move(requests));
  std::ranges::sort(results, {}, &RequestResult::id);
  Vectors vectors;
  for (RequestResult& result : results) {
    EXPECT_EQ(result.error_message, "");
    for (auto& vector : result.vectors) vectors.push_back(std::move(vector));
  }
  return vectors;
}

double Cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

class GoldenEmbedding : public testing::TestWithParam<const char*> {};

TEST_P(GoldenEmbedding, AgreesWithTheReference) {
  const auto runtime = runtime::CreateRealRuntime();
  const golden::Tensors golden(std::string("models/") + GetParam() + "/golden.safetensors");
  const auto expected = golden.Read<float>("embeddings");
  const auto width = static_cast<size_t>(golden.Find("embeddings").columns());
  for (const auto& [dtype, least] :
       {std::pair{tensor::DType::kF32, 0.99999}, std::pair{tensor::DType::kBF16, 0.9995}}) {
    const auto engine = Open(*runtime, {.model = GetParam(), .dtype = dtype});
    EXPECT_EQ(engine->facts().vector_width, static_cast<int32_t>(width));
    const Vectors vectors = VectorsOf(*engine, {Pooled(0, Prompts(golden))});
    ASSERT_EQ(vectors.size() * width, expected.size());
    for (size_t i = 0; i < vectors.size(); ++i)
      EXPECT_GE(Cosine(vectors[i], std::span(expected).subspan(i * width, width)), least) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenEmbedding,
                         testing::Values("qwen3-embed", "bert-embed", "modernbert-embed",
                                         "embedding-gemma"));

// The golden file's prompts in one request; second texts begin where it says.
Request PooledPairs(const golden::Tensors& golden) {
  Request request = Pooled(0, Prompts(golden));
  if (!golden.Has("token_type_ids")) return request;
  for (const auto& prompt : request.prompts) {
    const auto types = golden.Ids("token_type_ids", std::ssize(request.second_texts),
                                  static_cast<int64_t>(prompt.size()));
    request.second_texts.push_back(
        static_cast<int32_t>(std::ranges::find(types, 1) - types.begin()));
  }
  return request;
}

class GoldenHead : public testing::TestWithParam<const char*> {};

TEST_P(GoldenHead, AgreesWithTheReference) {
  const auto runtime = runtime::CreateRealRuntime();
  const golden::Tensors golden(std::string("models/") + GetParam() + "/golden.safetensors");
  const auto expected = golden.Read<float>("scores");
  for (const auto& [dtype, most] :
       {std::pair{tensor::DType::kF32, 1e-4}, std::pair{tensor::DType::kBF16, 0.05}}) {
    const auto engine = Open(*runtime, {.model = GetParam(), .dtype = dtype});
    std::vector<float> found;
    for (const auto& numbers : VectorsOf(*engine, {PooledPairs(golden)}))
      found.insert(found.end(), numbers.begin(), numbers.end());
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], most) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenHead, testing::Values("bert-classify", "xlm-roberta-rerank"));

// Without the second text's type the numbers are others.
TEST(HeadTest, TokenTypesCount) {
  const auto runtime = runtime::CreateRealRuntime();
  const golden::Tensors golden("models/bert-classify/golden.safetensors");
  const auto engine = Open(*runtime, {.model = "bert-classify"});
  Request pairs = PooledPairs(golden), single = pairs;
  single.second_texts.clear();
  EXPECT_NE(VectorsOf(*engine, {pairs}), VectorsOf(*engine, {single}));
}

TEST(EmbeddingTest, AVectorHasTheSameBitsHoweverItIsComputed) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto prompts = Prompts(golden::Tensors("models/qwen3-embed/golden.safetensors"));
  for (const char* pooling : {"last", "first", "mean"}) {
    const auto engine = Open(*runtime, {.pooling = pooling});
    const Vectors expected = VectorsOf(*engine, {Pooled(0, prompts)});
    ASSERT_EQ(expected.size(), prompts.size());
    // Again, where the cache has their blocks.
    EXPECT_EQ(VectorsOf(*engine, {Pooled(0, prompts)}), expected);
    for (const Asked& asked :
         {Asked{.prefix_caching = false, .rows = 13}, Asked{.devices = "2xcpu", .layout = "tp=2"},
          Asked{.devices = "2xcpu", .layout = "sp=2"}, Asked{.devices = "2xcpu", .layout = "pp=2"},
          Asked{.devices = "2xcpu", .layout = "dp=2"}}) {
      Asked other = asked;
      other.pooling = pooling;
      std::vector<Request> alone;
      for (size_t i = 0; i < prompts.size(); ++i)
        alone.push_back(Pooled(static_cast<int64_t>(i), {prompts[i]}));
      EXPECT_EQ(VectorsOf(*Open(*runtime, other), std::move(alone)), expected)
          << pooling << " " << asked.layout;
    }
  }
}

class EncoderBits : public testing::TestWithParam<const char*> {};

TEST_P(EncoderBits, AreTheSameHoweverAVectorIsComputed) {
  const auto runtime = runtime::CreateRealRuntime();
  const Asked asked{.model = GetParam()};
  const Request all = PooledPairs(golden::Tensors("models/" + asked.model + "/golden.safetensors"));
  const auto engine = Open(*runtime, asked);
  const Vectors expected = VectorsOf(*engine, {all});
  ASSERT_EQ(expected.size(), all.prompts.size());
  EXPECT_EQ(VectorsOf(*engine, {all}), expected);
  std::vector<Asked> others;
  // No more rows than the longest text: steps of one or two.
  others.push_back({.rows = 128});
  others.push_back({.rows = 128, .policy = "interactive"});
  for (const char* layout : {"dp=2", "tp=2", "sp=2", "pp=2"})
    others.push_back({.devices = "2xcpu", .layout = layout});
  for (Asked& other : others) {
    other.model = asked.model;
    std::vector<Request> alone;
    for (size_t i = 0; i < all.prompts.size(); ++i) {
      alone.push_back(Pooled(static_cast<int64_t>(i), {all.prompts[i]}));
      if (!all.second_texts.empty()) alone.back().second_texts = {all.second_texts[i]};
      if (i % 2 == 1) alone.back().service = Service::kInteractive;
    }
    EXPECT_EQ(VectorsOf(*Open(*runtime, other), std::move(alone)), expected) << other.layout;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EncoderBits,
                         testing::Values("bert-embed", "bert-classify", "embedding-gemma"));

TEST(EmbeddingTest, AnEncoderRefusesToGenerate) {
  const auto runtime = runtime::CreateRealRuntime();
  Request request = Pooled(0, {{5, 6}});
  request.pooled = false;
  const auto refusal = Open(*runtime, {.model = "bert-embed"})->Refusal(request);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->error_code, "model_generates_nothing");
}

// Requests that generate run in the same steps, and their answers are those without neighbours.
TEST(EmbeddingTest, VectorsAndAnswersInOneStep) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto prompts = Prompts(golden::Tensors("models/qwen3-embed/golden.safetensors"));
  Request asked;
  asked.id = 1;
  asked.prompts = {prompts[1]};
  asked.sampling.max_tokens = 5;
  asked.sampling.prompt_logprobs = 0;
  const auto engine = Open(*runtime, {});
  const auto alone = testing_support::RunAll(*engine, {asked});
  auto together =
      testing_support::RunAll(*engine, {Pooled(0, prompts), asked, Pooled(2, {prompts[2]})});
  std::ranges::sort(together, {}, &RequestResult::id);
  ASSERT_EQ(together.size(), 3u);
  EXPECT_EQ(together[1].choices[0].tokens, alone[0].choices[0].tokens);
  EXPECT_EQ(together[2].vectors[0], together[0].vectors[2]);
}

TEST(EmbeddingTest, AModelThatDoesNotPoolRefuses) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto engine = Open(*runtime, {.pooling = "none"});
  EXPECT_EQ(engine->facts().vector_width, 0);
  const auto refusal = engine->Refusal(Pooled(0, {{5, 6}}));
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->error_code, "pooling_missing");
}

}  // namespace
}  // namespace forebay
