// Tokenizers of GGUF files: the tiny models of tests/golden/gguf/, and SmolLM2's where the demo
// model was fetched.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/json.h"
#include "engine/load_tokenizer.h"
#include "testing/demo_model.h"
#include "testing/test_data.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "weights/formats/gguf.h"

namespace forebay {
namespace {

using simdjson::dom::element;
using text::Tokenizer;

base::Result<std::unique_ptr<Tokenizer>> OpenGguf(const std::string& path) {
  FB_ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(path));
  FB_ASSIGN_OR_RETURN(const weights::GgufFile file,
                      weights::GgufFile::Parse(std::as_bytes(std::span(bytes))));
  return engine::LoadTokenizer(path, &file);
}

std::vector<int32_t> Ids(element value) {
  std::vector<int32_t> out;
  for (const element id : value.get_array()) out.push_back(static_cast<int32_t>(int64_t(id)));
  return out;
}

// The file and the folder that it was made from read every text alike.
TEST(TextGguf, AgreesWithTheFolder) {
  const std::string golden = TestData() + "/golden";
  for (const std::string name : {"llama3-gqa", "qwen3"}) {
    auto folder = Tokenizer::FromHuggingFace(golden + "/models/" + name);
    auto gguf = OpenGguf(golden + "/gguf/" + name + "-Q8_0.gguf");
    ASSERT_TRUE(folder.ok()) << folder.status().ToString();
    ASSERT_TRUE(gguf.ok()) << gguf.status().ToString();
    EXPECT_EQ((*folder)->vocab_size(), (*gguf)->vocab_size());
    EXPECT_EQ((*folder)->eos(), (*gguf)->eos());
    std::ifstream cases(golden + "/tokenizers/qwen/cases.jsonl");
    simdjson::dom::parser parser;
    for (std::string line; std::getline(cases, line);) {
      const std::string_view words = (*base::ParseJson(parser, line))["text"].get_string().value();
      const std::vector<int32_t> ids = (*folder)->Encode(words);
      ASSERT_EQ((*gguf)->Encode(words), ids) << line;
      ASSERT_EQ((*gguf)->Decode(ids, false), (*folder)->Decode(ids, false)) << line;
    }
  }
}

// The file of `make demo`, or the one that FOREBAY_DEMO_MODEL names.
class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = testing_support::DemoModel();
    if (path.empty()) GTEST_SKIP() << testing_support::kNoDemoModel;
    auto made = OpenGguf(path);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    tokenizer_ = std::move(*made);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(SmolLm2, EveryTokenizerCase) {
  std::ifstream cases(TestData() + "/golden/tokenizers/smollm2-gguf/cases.jsonl");
  simdjson::dom::parser parser;
  int lines = 0;
  for (std::string line; std::getline(cases, line) && !HasFailure(); ++lines) {
    const element root = *base::ParseJson(parser, line);
    const std::string_view words = root["text"].get_string().value();
    std::string_view decoded, decoded_skip;
    if (root["decoded"].get(decoded)) decoded = words;
    if (root["decoded_skip"].get(decoded_skip)) decoded_skip = decoded;
    const std::vector<int32_t> ids = Ids(root["ids"]);
    EXPECT_EQ(tokenizer_->Encode(words), ids) << line;
    EXPECT_EQ(tokenizer_->Decode(ids, false), decoded) << line;
    EXPECT_EQ(tokenizer_->Decode(ids, true), decoded_skip) << line;
  }
  EXPECT_GE(lines, 1500);
}

TEST_F(SmolLm2, Chats) {
  std::ifstream chats(TestData() + "/golden/smollm2.jsonl");
  simdjson::dom::parser parser;
  int lines = 0;
  for (std::string line; std::getline(chats, line); ++lines) {
    const element root = *base::ParseJson(parser, line);
    EXPECT_EQ(tokenizer_->Encode(root["text"].get_string().value()), Ids(root["input_ids"]))
        << line;
    const std::vector<int32_t> greedy = Ids(root["greedy"]);
    EXPECT_EQ(tokenizer_->Decode(greedy, false), root["decoded_full"].get_string().value()) << line;
    text::Detokenizer detokenizer(*tokenizer_, true);
    std::string decoded;
    const int64_t eos_at = root["eos_at"].get_int64().value();
    for (size_t i = 0; i < (eos_at < 0 ? greedy.size() : static_cast<size_t>(eos_at)); ++i) {
      decoded += detokenizer.Append(greedy[i]);
    }
    EXPECT_EQ(decoded + detokenizer.Flush(), root["decoded"].get_string().value()) << line;
  }
  EXPECT_EQ(lines, 24);
}

}  // namespace
}  // namespace forebay
