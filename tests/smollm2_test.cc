// The demo model end to end against Hugging Face: template, tokenizer, forward pass, greedy tokens,
// detokenizer.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "choose/create_engine.h"
#include "job/model_text.h"
#include "runtime/real/real_runtime.h"
#include "testing/demo_model.h"
#include "testing/golden_files.h"
#include "testing/list_source.h"

namespace forebay {
namespace {

struct Case {
  std::string messages, text, decoded, decoded_full;
  std::vector<int32_t> input_ids, greedy;
  std::vector<double> gap;
};

template <typename T>
std::vector<T> Numbers(simdjson::dom::element array) {
  std::vector<T> values;
  for (const simdjson::dom::element value : simdjson::dom::array(array)) {
    values.push_back(
        static_cast<T>(value.is_double() ? double(value) : static_cast<double>(int64_t(value))));
  }
  return values;
}

std::vector<Case> ReadCases() {
  std::vector<Case> cases;
  std::ifstream file(golden::Path("smollm2.jsonl"));
  simdjson::dom::parser parser;
  for (std::string line; std::getline(file, line);) {
    const simdjson::dom::element e = parser.parse(line);
    cases.push_back({simdjson::minify(e["messages"]), std::string(std::string_view(e["text"])),
                     std::string(std::string_view(e["decoded"])),
                     std::string(std::string_view(e["decoded_full"])),
                     Numbers<int32_t>(e["input_ids"]), Numbers<int32_t>(e["greedy"]),
                     Numbers<double>(e["greedy_gap"])});
  }
  return cases;
}

class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = testing_support::DemoModel();
    if (path.empty()) GTEST_SKIP() << testing_support::kNoDemoModel;
    auto files = engine::OpenModel(path, false, 0);
    ASSERT_TRUE(files.ok()) << files.status().ToString();
    files_ = std::move(files).value();
    auto text = job::ModelText::Load({.path = path, .gguf = files_.gguf});
    ASSERT_TRUE(text.ok()) << text.status().ToString();
    text_ = std::move(text).value();
    cases_ = ReadCases();
    ASSERT_EQ(cases_.size(), 24u);
  }

  // Greedy tokens of the first `chats` must equal the reference's up to the first step whose gap is
  // below `least_gap`.
  void CheckGreedy(tensor::DType dtype, double least_gap, size_t chats) {
    layout::EngineOptions options;
    options.machine.dtype = dtype;
    options.machine.memory_bytes = 2ull << 30;
    options.limits.max_model_len = 4096;
    const auto runtime = runtime::CreateRealRuntime();
    auto engine = choose::CreateEngine(*runtime, options, files_, text_->tokenizer());
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    std::vector<Request> requests;
    for (size_t i = 0; i < chats; ++i) {
      Request request;
      request.id = request.line = static_cast<int64_t>(i);
      request.prompts = {cases_[i].input_ids};
      request.sampling.temperature = 0;
      request.sampling.max_tokens = 64;
      request.sampling.ignore_eos = true;
      request.sampling.skip_special_tokens = false;
      requests.push_back(request);
    }
    size_t compared = 0, whole = 0;
    for (const RequestResult& result : testing_support::RunAll(**engine, requests)) {
      ASSERT_EQ(result.error_message, "");
      const Case& expected = cases_[result.id];
      const std::vector<int32_t>& tokens = result.choices[0].tokens;
      ASSERT_EQ(tokens.size(), expected.greedy.size());
      size_t sure = 0;
      while (sure < tokens.size() && expected.gap[sure] >= least_gap) ++sure;
      for (size_t i = 0; i < sure; ++i) {
        ASSERT_EQ(tokens[i], expected.greedy[i])
            << "chat " << result.id << ", step " << i << ", gap " << expected.gap[i];
      }
      compared += sure;
      if (tokens != expected.greedy) continue;
      ++whole;
      EXPECT_EQ(result.choices[0].text, expected.decoded_full) << "chat " << result.id;
    }
    std::printf("%s: %zu greedy steps compared, %zu of %zu answers equal to their end\n",
                dtype == tensor::DType::kF32 ? "float32" : "bfloat16", compared, whole, chats);
    EXPECT_GT(compared, 24u);
    EXPECT_GT(whole, 0u);
  }

  engine::ModelFiles files_;
  std::unique_ptr<job::ModelText> text_;
  std::vector<Case> cases_;
};

TEST_F(SmolLm2, TemplateAndTokenizerAgree) {
  for (const Case& c : cases_) {
    const auto rendered = text_->RenderPrompt({.messages = c.messages});
    ASSERT_TRUE(rendered.ok()) << rendered.status().ToString();
    EXPECT_EQ(rendered->text, c.text);
    EXPECT_EQ(text_->Encode(*rendered, false), c.input_ids);
  }
}

TEST_F(SmolLm2, GreedyTokensAgreeInFp32) { CheckGreedy(tensor::DType::kF32, 0.02, 10); }
TEST_F(SmolLm2, GreedyTokensAgreeInBf16) { CheckGreedy(tensor::DType::kBF16, 0.35, 24); }

}  // namespace
}  // namespace forebay
