// Every case of tests/golden/tokenizers/ (its README says what they are).
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <string>

#include "base/json.h"
#include "testing/test_data.h"
#include "text/detokenizer.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode/unicode.h"

namespace forebay::text {
namespace {

using simdjson::dom::element;

std::vector<int32_t> ReadIds(element value) {
  std::vector<int32_t> out;
  simdjson::dom::array array;
  if (value.get(array)) return out;
  for (const element id : array) out.push_back(static_cast<int32_t>(int64_t(id)));
  return out;
}

std::string Incrementally(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                          bool skip_special) {
  Detokenizer detokenizer(tokenizer, skip_special);
  std::string out;
  for (const int32_t id : ids) {
    const std::string piece = detokenizer.Append(id);
    EXPECT_TRUE(IsValidUtf8(piece));
    out += piece;
  }
  return out + detokenizer.Flush();
}

class GoldenTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, EveryCase) {
  const std::string folder = TestData() + "/golden/tokenizers/" + GetParam();
  auto made = Tokenizer::FromHuggingFace(folder);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const Tokenizer& tokenizer = **made;
  std::ifstream file(folder + "/cases.jsonl");
  simdjson::dom::parser parser;
  int lines = 0;
  for (std::string line; std::getline(file, line) && !HasFailure(); ++lines) {
    auto parsed = base::ParseJson(parser, line);
    ASSERT_TRUE(parsed.ok());
    const element root = *parsed;
    const std::string text{root["text"].get_string().value()};
    const std::vector<int32_t> ids = ReadIds(root["ids"]);
    std::vector<int32_t> with_special;
    if (element pre; !root["pre"].get(pre)) with_special = ReadIds(pre);
    with_special.insert(with_special.end(), ids.begin(), ids.end());
    if (element post; !root["post"].get(post)) {
      const std::vector<int32_t> behind = ReadIds(post);
      with_special.insert(with_special.end(), behind.begin(), behind.end());
    }
    std::string_view decoded = text, decoded_skip;
    if (root["decoded"].get(decoded)) decoded = text;
    if (root["decoded_skip"].get(decoded_skip)) decoded_skip = decoded;

    EXPECT_EQ(tokenizer.Encode(text, {.add_special_tokens = false}), ids) << line;
    EXPECT_EQ(tokenizer.Encode(text), with_special);
    EXPECT_EQ(tokenizer.Decode(ids, false), decoded) << line;
    EXPECT_EQ(tokenizer.Decode(ids, true), decoded_skip) << line;
    EXPECT_EQ(Incrementally(tokenizer, ids, false), decoded) << line;
    EXPECT_EQ(Incrementally(tokenizer, ids, true), decoded_skip) << line;
  }
  EXPECT_GE(lines, 1500);
}

// A name of tokenizer.ggml.pre, and a tokenizer that splits as its models do.
struct Split {
  const char* pre;
  const char* folder;
};
class GoldenSplit : public testing::TestWithParam<Split> {};

// The tokenizer's tokens and merges as a GGUF file holds them, split by the file's name for it. No
// file says that words which are tokens need no merges, nor that tokens eat what is beside them.
TEST_P(GoldenSplit, EveryCase) {
  const std::string folder = TestData() + "/golden/tokenizers/" + GetParam().folder;
  simdjson::dom::parser parser, lines;
  element root;
  ASSERT_FALSE(parser.load(folder + "/tokenizer.json").get(root));
  std::vector<std::string_view> tokens, merges;
  std::vector<int64_t> types;
  const auto place = [&](element id, std::string_view token, int64_t type) {
    const auto at = static_cast<size_t>(int64_t(id));
    if (tokens.size() <= at) tokens.resize(at + 1);
    types.resize(tokens.size(), 1);
    tokens[at] = token;
    types[at] = type;
  };
  for (const auto [token, id] : simdjson::dom::object(root["model"]["vocab"])) place(id, token, 1);
  for (const element added : simdjson::dom::array(root["added_tokens"]))
    place(added["id"], added["content"], bool(added["special"]) ? 3 : 4);
  std::deque<std::string> joined;
  for (const element merge : simdjson::dom::array(root["model"]["merges"])) {
    std::string_view line;
    if (merge.get(line)) {
      line = joined.emplace_back(std::string(std::string_view(merge.at(0))) + " " +
                                 std::string(std::string_view(merge.at(1))));
    }
    merges.push_back(line);
  }
  GgufTokenizer gguf;
  gguf.model = "gpt2";
  gguf.pre = GetParam().pre;
  gguf.tokens = tokens;
  gguf.token_types = types;
  gguf.merges = merges;
  auto spec = SpecFromGguf(gguf);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  if (bool whole = false; !root["model"]["ignore_merges"].get(whole)) spec->ignore_merges = whole;
  const auto made = Tokenizer::FromSpec(*std::move(spec));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  std::ifstream file(folder + "/cases.jsonl");
  int count = 0;
  for (std::string line; std::getline(file, line) && !HasFailure(); ++count) {
    const auto parsed = base::ParseJson(lines, line);
    ASSERT_TRUE(parsed.ok());
    const std::string text((*parsed)["text"].get_string().value());
    if (std::string_view((*parsed)["k"]) == "special" || text.find("<|eats_") != std::string::npos)
      continue;
    EXPECT_EQ((*made)->Encode(text, {.add_special_tokens = false}), ReadIds((*parsed)["ids"]))
        << line;
  }
  EXPECT_GE(count, 1500);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenSplit,
                         testing::Values(Split{"glm4", "llama3"}, Split{"chatglm-bpe", "llama3"},
                                         Split{"dbrx", "llama3"}, Split{"lfm2", "llama3"},
                                         Split{"hunyuan", "qwen"},
                                         Split{"hunyuan-dense", "deepseek-v3"},
                                         Split{"refact", "smollm"}, Split{"exaone", "smollm"}),
                         [](const auto& info) {
                           std::string name = info.param.pre;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizer,
                         testing::Values("bert", "deepseek-v3", "llama2-prepend", "llama3",
                                         "mistral-metaspace", "qwen", "smollm", "unigram"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace forebay::text
