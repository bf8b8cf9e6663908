// Every case of tests/golden/tokenizers/ (its README says what they are).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/json.h"
#include "testing/test_data.h"
#include "text/detokenizer.h"
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
