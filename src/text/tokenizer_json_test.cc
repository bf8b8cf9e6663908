#include "text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

#include "base/status.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace forebay::text {
namespace {

constexpr char kModel[] =
    R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<0x0A>":3},"merges":["a b"]})";

// A whole file around the given members.
std::string File(const std::string& members, const std::string& model = kModel) {
  return "{\"model\":" + model + (members.empty() ? "" : "," + members) + "}";
}

base::Status StatusOf(const std::string& json) {
  auto spec = ParseTokenizerJson(json);
  if (!spec.ok()) return spec.status();
  return Tokenizer::FromSpec(std::move(*spec)).status();
}

TEST(TokenizerJson, MinimalFile) {
  auto spec = ParseTokenizerJson(File(""));
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  auto made = Tokenizer::FromSpec(std::move(*spec));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ((*made)->Encode("abba"), (std::vector<int32_t>{2, 1, 0}));
  EXPECT_EQ((*made)->Decode(std::vector<int32_t>{2, 1, 0}, false), "ab b a");
}

TEST(TokenizerJson, MembersInAnyOrder) {
  auto spec = ParseTokenizerJson(
      R"({"model":{"merges":[["a","b"]],"unk_token":"b","vocab":{"ab":2,"b":1,"a":0}},"added_tokens":null})");
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->tokens, (std::vector<std::string>{"a", "b", "ab"}));
  EXPECT_EQ(spec->merges.size(), 1u);
  EXPECT_EQ(spec->unk, 1);
}

TEST(TokenizerJson, MalformedFiles) {
  const auto added = [](const std::string& token) {
    return File("\"added_tokens\":[" + token + "]");
  };
  const std::string byte_level =
      R"("pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"})";
  const struct {
    std::string json;
    base::ErrorCode code;
    const char* words;  // in the message
  } cases[] = {
      {"", base::kJsonInvalid, "JSON"},
      {"{\"model\":", base::kJsonInvalid, "JSON"},
      {"[]", kTokenizerInvalid, "the file: expected an object"},
      {"{}", kTokenizerInvalid, "model: \"vocab\" is missing"},
      {R"({"model":{"vocab":{"a":0},"vocab":{},"merges":[]}})", kTokenizerInvalid,
       "\"vocab\" is there twice"},
      {File("") + "{}", base::kJsonInvalid, "JSON"},
      {R"({"model":7})", kTokenizerInvalid, "the file, \"model\": expected an object"},
      {R"({"model":{"type":"WordLevel","vocab":{}}})", kTokenizerUnsupported, "WordLevel"},
      {R"({"model":{"type":"Unigram","vocab":{}}})", kTokenizerInvalid, "expected an array"},
      {R"({"model":{"type":"Unigram","vocab":[["a",-1],["b"]]}})", kTokenizerInvalid,
       "entry 1 is no array of a token and a finite score"},
      {R"({"model":{"type":"Unigram","vocab":[["a","x"]]}})", kTokenizerInvalid, "entry 0"},
      {R"({"model":{"type":"Unigram","vocab":[["a",-1]],"unk_id":7}})", kTokenizerInvalid,
       "special token 7 does not exist"},
      {R"({"model":{"type":"WordPiece","vocab":{"a":0},"unk_token":"u"}})", kTokenizerInvalid,
       "unk_token \"u\""},
      {R"({"model":{"type":"WordPiece","vocab":{},"max_input_chars_per_word":0}})",
       kTokenizerInvalid, "max_input_chars_per_word\" is 0"},
      {R"({"model":{"type":7}})", kTokenizerInvalid, "expected a string"},
      {R"({"model":{"vocab":{}}})", kTokenizerInvalid, "\"merges\" is missing"},
      {R"({"model":{"merges":[]}})", kTokenizerInvalid, "\"vocab\" is missing"},
      {R"({"model":{"vocab":[],"merges":[]}})", kTokenizerInvalid, "expected an object"},
      {R"({"model":{"vocab":{"a":"0"},"merges":[]}})", kTokenizerInvalid, "expected an integer"},
      {R"({"model":{"vocab":{"a":-1},"merges":[]}})", kTokenizerInvalid, "has the id -1"},
      {R"({"model":{"vocab":{"a":1000000000},"merges":[]}})", kTokenizerInvalid,
       "has the id 1000000000"},
      {R"({"model":{"vocab":{"a":0,"b":0},"merges":[]}})", kTokenizerInvalid,
       "stands for two tokens"},
      {R"({"model":{"vocab":{"a":0},"merges":["a"]}})", kTokenizerInvalid, "not two tokens"},
      {R"({"model":{"vocab":{"a":0},"merges":["a a a"]}})", kTokenizerInvalid, "not two tokens"},
      {R"({"model":{"vocab":{"a":0},"merges":["a a"]}})", kTokenizerInvalid,
       "needs the token \"aa\""},
      {R"({"model":{"vocab":{"a":0},"merges":[["a"]]}})", kTokenizerInvalid,
       "array of two strings"},
      {R"({"model":{"vocab":{"a":0},"merges":[1]}})", kTokenizerInvalid, "array of two strings"},
      {R"({"model":{"vocab":{"a":0},"merges":[],"unk_token":"u"}})", kTokenizerInvalid,
       "unk_token \"u\""},
      {R"({"model":{"vocab":{"a":0},"merges":[],"dropout":0.1}})", kTokenizerUnsupported,
       "dropout"},
      {R"({"model":{"vocab":{},"merges":[],"end_of_word_suffix":"</w>"}})", kTokenizerUnsupported,
       "end_of_word_suffix"},
      {R"({"model":{"vocab":{},"merges":[],"byte_fallback":1}})", kTokenizerInvalid,
       "expected true or false"},

      {added("1"), kTokenizerInvalid, "expected an object"},
      {added(R"({"content":"x"})"), kTokenizerInvalid, "\"id\" is missing"},
      {added(R"({"id":9})"), kTokenizerInvalid, "\"content\" is missing"},
      {added(R"({"id":-3,"content":"x"})"), kTokenizerInvalid, "-3"},
      {added(R"({"id":99999999,"content":"x"})"), kTokenizerInvalid, "has the id 99999999"},
      {added(R"({"id":1,"content":"x"})"), kTokenizerInvalid, "stands for two tokens"},
      {added(R"({"id":9,"content":"x"},{"id":9,"content":"y"})"), kTokenizerInvalid,
       "stands for two tokens"},
      {added(R"({"id":9,"content":")" + std::string(300, 'x') + "\"}"), kTokenizerInvalid,
       "300 bytes"},
      {File(R"("added_tokens":{})"), kTokenizerInvalid, "expected an array"},

      {File(R"("normalizer":{"type":"Nmt"})"), kTokenizerUnsupported, "Nmt"},
      {File(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"?"})"), kTokenizerInvalid,
       "no base64"},
      {File(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"AAA="})"),
       kTokenizerInvalid, "a map of 2 bytes"},
      {File(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"CAAAAAAAAAA="})"),
       kTokenizerInvalid, "a trie of 8 bytes in 4"},
      {File(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAABh"})"),
       kTokenizerInvalid, "does not end in a zero"},
      {File(R"("normalizer":{})"), kTokenizerInvalid, "\"type\" is missing"},
      {File(R"("normalizer":7)"), kTokenizerInvalid, "normalizer: expected an object"},
      {File(R"("normalizer":{"type":"Sequence"})"), kTokenizerInvalid,
       "\"normalizers\" is missing"},
      {File(R"("normalizer":{"type":"Replace","pattern":{"Regex":"("},"content":""})"),
       kTokenizerUnsupported, "does not compile"},
      {File(R"("normalizer":{"type":"Replace","pattern":{"String":""},"content":""})"),
       kTokenizerInvalid, "empty pattern"},

      {File(R"("pre_tokenizer":{"type":"UnicodeScripts"})"), kTokenizerUnsupported,
       "UnicodeScripts"},
      {File(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"})"),
       kTokenizerUnsupported, "does not compile"},
      {File(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"Gone"})"),
       kTokenizerUnsupported, "Gone"},
      {File(R"("pre_tokenizer":{"type":"Split","pattern":{"String":""},"behavior":"Isolated"})"),
       kTokenizerInvalid, "empty string"},
      {File(R"("pre_tokenizer":{"type":"Metaspace","replacement":"_"})"), kTokenizerUnsupported,
       "replacement"},
      {File(R"("pre_tokenizer":{"type":"Metaspace","prepend_scheme":"last"})"),
       kTokenizerUnsupported, "last"},
      {File(
           R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})"),
       kTokenizerUnsupported, "Digits after ByteLevel"},
      {File(R"("pre_tokenizer":{"type":"ByteLevel"})"), kTokenizerUnsupported, "ByteLevel decoder"},
      {File(R"("decoder":{"type":"ByteLevel"})"), kTokenizerUnsupported, "ByteLevel decoder"},

      {File(R"("decoder":{"type":"CTC"})"), kTokenizerUnsupported, "CTC"},
      {File(R"("decoder":{"type":"Strip","content":" ","start":1,"stop":0})"),
       kTokenizerUnsupported, "without Fuse"},
      {File(
           R"("decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]})"),
       kTokenizerUnsupported, "ByteFallback at this place"},
      {File(
           R"("decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":" ","start":0,"stop":1}]})"),
       kTokenizerUnsupported, "spaces at the start"},

      {File(R"("post_processor":{"type":"BertProcessing","sep":["x",0]})"), kTokenizerInvalid,
       "\"cls\" is missing"},
      {File(R"("post_processor":{"type":"RobertaProcessing","sep":["x"],"cls":["x",0]})"),
       kTokenizerInvalid, "expected a token and its id"},
      {File(R"("post_processor":{"type":"TemplateProcessing","single":[],"special_tokens":{}})"),
       kTokenizerInvalid, "not one Sequence"},
      {File(
           R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],"special_tokens":{}})"),
       kTokenizerInvalid, "\"x\" is missing"},
      {File(
           R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{}}],)"
           R"("special_tokens":{"x":{"ids":[77]}}})"),
       kTokenizerInvalid, "adds the id 77"},
      {File(byte_level +
            R"(,"post_processor":{"type":"Sequence","processors":[{"type":"Roberta"}]})"),
       kTokenizerUnsupported, "Roberta"},
  };
  for (const auto& [json, code, words] : cases) {
    const base::Status status = StatusOf(json);
    EXPECT_EQ(std::string(status.code().name), code.name) << json << ": " << status.ToString();
    EXPECT_NE(status.message().find(words), std::string::npos) << json << ": " << status.ToString();
  }
}

// Two texts as one, as each post-processor joins them.
TEST(TokenizerJson, PairsOfTexts) {
  const std::string sequence = R"({"Sequence":{"id":"A"}})", second = R"({"Sequence":{"id":"B"}})",
                    token = R"({"SpecialToken":{"id":"x"}})";
  const struct {
    std::string post;
    std::vector<int32_t> ids;
    size_t second;
  } cases[] = {
      {R"({"type":"BertProcessing","sep":["b",1],"cls":["b",1]})", {1, 0, 1, 0, 0, 1}, 3},
      {R"({"type":"RobertaProcessing","sep":["b",1],"cls":["b",1]})", {1, 0, 1, 1, 0, 0, 1}, 4},
      {R"({"type":"TemplateProcessing","single":[)" + sequence + R"(],"pair":[)" + sequence + "," +
           token + "," + second + R"(],"special_tokens":{"x":{"ids":[1]}}})",
       {0, 1, 0, 0},
       2}};
  for (const auto& [post, ids, at] : cases) {
    auto spec = ParseTokenizerJson(File(R"("post_processor":)" + post));
    ASSERT_TRUE(spec.ok()) << spec.status().ToString();
    auto made = Tokenizer::FromSpec(std::move(*spec));
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    const auto pair = (*made)->EncodePair("a", "aa");
    ASSERT_TRUE(pair) << post;
    EXPECT_EQ(pair->ids, ids) << post;
    EXPECT_EQ(pair->second, at) << post;
    // What is around the texts stays, of the texts what has room: the shorter one up to a half.
    const auto around = static_cast<int64_t>(ids.size()) - 3;
    const auto cut = (*made)->EncodePair("a", "aaaaaa", around + 3);
    EXPECT_EQ(cut->ids, ids) << post;
    EXPECT_EQ((*made)->EncodePair("aaaaaa", "aaaaaa", around + 5)->ids.size(),
              static_cast<size_t>(around + 5));
    EXPECT_EQ((*made)->EncodePair("a", "a", 1)->ids.size(), static_cast<size_t>(around));
    const auto whole = (*made)->Encode("aaaa"), fit = (*made)->Encode("aaaa", {.most_tokens = 4});
    EXPECT_EQ(fit.size(), 4u);
    EXPECT_EQ(fit.front(), whole.front());
    EXPECT_EQ(fit.back(), whole.back());
  }
  auto without = Tokenizer::FromSpec(*ParseTokenizerJson(File(R"("decoder":null)")));
  EXPECT_FALSE((*without)->EncodePair("a", "a"));
}

TEST(TokenizerJson, EveryPrefixOfAFileIsAnError) {
  const std::string json = File(R"("decoder":{"type":"Fuse"})");
  ASSERT_TRUE(StatusOf(json).ok()) << StatusOf(json).ToString();
  for (size_t length = 0; length < json.size(); ++length)
    EXPECT_FALSE(StatusOf(json.substr(0, length)).ok()) << length;
}

TEST(TokenizerConfig, AddBosTokenOverrulesThePostProcessor) {
  const std::string tokens =
      R"("added_tokens":[{"id":4,"content":"<s>","special":true},{"id":5,"content":"</s>","special":true}])";
  const std::string post =
      R"(,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},)"
      R"({"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[4]}}})";
  const struct {
    bool has_template;
    const char* config;
    std::vector<int32_t> ids;
  } cases[] = {
      {true, R"({})", {4, 0}},
      {true, R"({"bos_token":"<s>","add_bos_token":true})", {4, 0}},
      {true, R"({"bos_token":"<s>","add_bos_token":false})", {0}},
      {false, R"({"bos_token":{"content":"<s>"},"add_bos_token":true})", {4, 0}},
      {false,
       R"({"bos_token":"<s>","eos_token":"</s>","add_bos_token":true,"add_eos_token":true})",
       {4, 0, 5}},
      {false, R"({"bos_token":"<s>"})", {0}},
      {false, R"({"bos_token":null,"add_bos_token":true})", {0}},
  };
  for (const auto& [has_template, config, ids] : cases) {
    auto spec = ParseTokenizerJson(File(tokens + (has_template ? post : "")));
    ASSERT_TRUE(spec.ok()) << spec.status().ToString();
    ASSERT_TRUE(ApplyTokenizerTexts({.config = config}, &*spec).ok());
    auto made = Tokenizer::FromSpec(std::move(*spec));
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    EXPECT_EQ((*made)->Encode("a"), ids) << config;
    EXPECT_EQ((*made)->Encode("a", {.add_special_tokens = false}), std::vector<int32_t>{0});
  }
}

TEST(TokenizerFolder, NamesTheFileThatIsMissing) {
  const auto made = Tokenizer::FromHuggingFace("/nonexistent");
  EXPECT_EQ(made.status().code(), base::kIoError);
  EXPECT_NE(made.status().message().find("/nonexistent/tokenizer.json"), std::string::npos);
}

}  // namespace
}  // namespace forebay::text
