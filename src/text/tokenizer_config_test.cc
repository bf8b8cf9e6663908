// What the files beside tokenizer.json add: right values are those of Hugging Face's transformers.
#include "text/tokenizer_config.h"

#include <gtest/gtest.h>

#include <string>

#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace forebay::text {
namespace {

using Ids = std::vector<int32_t>;

// The vocabulary "a" 0, "b" 1, "<w>" 2, "x" 3, "y" 4, with `added`.
TokenizerSpec Spec(const std::string& added) {
  auto spec = ParseTokenizerJson(
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"<w>":2,"x":3,"y":4,"<":5,">":6,"w":7},"merges":[]},)"
      R"("added_tokens":[)" +
      added + "]}");
  EXPECT_TRUE(spec.ok()) << spec.status().ToString();
  return spec.ok() ? *spec : TokenizerSpec();
}

std::string Token(int id, const std::string& content, const std::string& flags = "") {
  return "{\"id\":" + std::to_string(id) + ",\"content\":\"" + content + "\"" + flags + "}";
}

std::unique_ptr<Tokenizer> Make(const std::string& added, const TokenizerTexts& texts,
                                std::vector<std::string>* warnings = nullptr) {
  TokenizerSpec spec = Spec(added);
  const base::Status applied = ApplyTokenizerTexts(texts, &spec);
  EXPECT_TRUE(applied.ok()) << applied.ToString();
  if (warnings != nullptr) *warnings = spec.warnings;
  auto made = Tokenizer::FromSpec(std::move(spec));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(*made);
}

TEST(AddedTokens, AContentUnderTwoIdsHasTheFirstIdAndTheLastFlags) {
  const auto made =
      Make(Token(8, "<e>", ",\"special\":true") + "," + Token(9, "<e>", ",\"lstrip\":true"), {});
  EXPECT_EQ(made->Encode("a<e>b"), (Ids{0, 8, 1}));
  EXPECT_EQ(made->Encode(" <e>"), (Ids{8}));  // lstrip
  EXPECT_FALSE(made->IsSpecial(8));
  EXPECT_EQ(made->TokenBytes(9), "");
}

TEST(AddedTokens, AWordOfTheVocabularyKeepsItsId) {
  std::vector<std::string> warnings = Spec(Token(11, "<w>", ",\"special\":true")).warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("has the ids 2 and 11"), std::string::npos) << warnings[0];
  const auto made = Make(Token(11, "<w>", ",\"special\":true"), {});
  EXPECT_EQ(made->Encode("a<w>"), (Ids{0, 2}));
  EXPECT_TRUE(made->IsSpecial(2));
}

TEST(TokenizerConfig, AddsTokensOfItsDecoder) {
  const auto made = Make(Token(8, "<e>"), {.config = R"({"added_tokens_decoder":{
      "10":{"content":"<new>","special":true},"8":{"content":"<e>","special":true},
      "9":{"content":"<plain>","special":false}}})"});
  EXPECT_EQ(made->Encode("<new><plain>a"), (Ids{10, 9, 0}));
  EXPECT_TRUE(made->IsSpecial(10));
  EXPECT_FALSE(made->IsSpecial(9));
  EXPECT_TRUE(made->IsSpecial(8));  // the flags of this file
}

TEST(TokenizerConfig, AnIdThatIsTakenCostsAWarning) {
  std::vector<std::string> warnings;
  const auto made = Make(Token(8, "<e>"), {.config = R"({"added_tokens_decoder":{
      "8":{"content":"<other>"},"9":{"content":"<e>"}}})"},
                         &warnings);
  EXPECT_EQ(made->Encode("<e>"), (Ids{8}));
  EXPECT_FALSE(made->TokenToId("<other>"));
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("two tokens"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[1].find("has the id 9"), std::string::npos) << warnings[1];
}

TEST(TokenizerConfig, OlderFoldersHaveAddedTokensInAFileOfTheirOwn) {
  const TokenizerTexts texts{.config = R"({"eos_token":"<end>"})",
                             .added_tokens = R"({"<end>":8,"<plain>":9})"};
  const auto made = Make("", texts);
  EXPECT_EQ(made->Encode("a<end><plain>"), (Ids{0, 8, 9}));
  EXPECT_TRUE(made->IsSpecial(8));  // it has a name
  EXPECT_FALSE(made->IsSpecial(9));
  EXPECT_EQ(made->eos(), 8);
  // Not read beside an added_tokens_decoder.
  const auto newer =
      Make("", {.config = R"({"added_tokens_decoder":{}})", .added_tokens = R"({"<end>":8})"});
  EXPECT_FALSE(newer->TokenToId("<end>"));
}

TEST(TokenizerConfig, NamedTokensAreSpecialAndNeverSplit) {
  // A word of the vocabulary, an added token that says it is not special, and one nobody knows yet.
  const auto made = Make(Token(8, "<e>", ",\"special\":false"), {.config = R"({
      "bos_token":"<w>","eos_token":{"content":"<e>","special":false},"mask_token":"<m>",
      "additional_special_tokens":["<t>"],"extra_special_tokens":{"image_token":"<i>"}})"});
  EXPECT_EQ(made->Encode("a<w><e><m><t><i>"), (Ids{0, 2, 8, 9, 10, 11}));
  for (const int32_t id : {2, 8, 9, 10, 11}) EXPECT_TRUE(made->IsSpecial(id)) << id;
  EXPECT_EQ(made->ends(), (Ids{8}));
  const std::vector<std::pair<std::string, std::string>> named = {
      {"bos_token", "<w>"}, {"eos_token", "<e>"}, {"mask_token", "<m>"}, {"image_token", "<i>"}};
  EXPECT_EQ(made->named(), named);
}

TEST(TokenizerConfig, NamesThatItLacksAreInTheMap) {
  std::vector<std::string> warnings;
  const auto made = Make("",
                         {.config = R"({"eos_token":null,"pad_token":"x"})",
                          .special_tokens_map = R"({"eos_token":{"content":"<w>"},"sep_token":"y",
                                  "pad_token":"a"})"},
                         &warnings);
  EXPECT_EQ(made->eos(), 2);
  const std::vector<std::pair<std::string, std::string>> named = {
      {"eos_token", "<w>"}, {"sep_token", "y"}, {"pad_token", "x"}};
  EXPECT_EQ(made->named(), named);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("pad_token is \"x\""), std::string::npos) << warnings[0];
}

TEST(TokenizerConfig, OnlySomeClassesKnowTheRuleOfBos) {
  const std::string added = Token(8, "<s>", ",\"special\":true");
  const auto encode = [&](const std::string& tokenizer_class) {
    TokenizerSpec spec = Spec(added);
    spec.prefix = {8};
    const std::string config =
        R"({"bos_token":"<s>","eos_token":"<w>","add_bos_token":false,"add_eos_token":true)" +
        tokenizer_class + "}";
    EXPECT_TRUE(ApplyTokenizerTexts({.config = config}, &spec).ok());
    return (*Tokenizer::FromSpec(std::move(spec)))->Encode("a");
  };
  EXPECT_EQ(encode(""), (Ids{0, 2}));
  for (const char* knows : {"LlamaTokenizerFast", "LlamaTokenizer", "GemmaTokenizerFast"})
    EXPECT_EQ(encode(std::string(",\"tokenizer_class\":\"") + knows + "\""), (Ids{0, 2})) << knows;
  for (const char* does_not : {"PreTrainedTokenizerFast", "Qwen2Tokenizer", "GPT2TokenizerFast"})
    EXPECT_EQ(encode(std::string(",\"tokenizer_class\":\"") + does_not + "\""), (Ids{8, 0}))
        << does_not;
}

TEST(TokenizerConfig, WhatIsIllTypedIsNamed) {
  for (const char* config :
       {R"({"bos_token":7})", R"({"add_bos_token":"yes"})", R"({"added_tokens_decoder":[]})",
        R"({"added_tokens_decoder":{"x":{"content":"a"}}})", R"({"extra_special_tokens":3})"}) {
    TokenizerSpec spec = Spec("");
    EXPECT_EQ(ApplyTokenizerTexts({.config = config}, &spec).code(), kTokenizerInvalid) << config;
  }
  TokenizerSpec spec = Spec("");
  EXPECT_EQ(ApplyTokenizerTexts({.added_tokens = R"({"<e>":-1})"}, &spec).code(),
            kTokenizerInvalid);
  EXPECT_EQ(ApplyTokenizerTexts({.special_tokens_map = "["}, &spec).code(), base::kJsonInvalid);
}

TEST(TokenizerJson, AnUnknownTokenThatNothingNeedsMayBeAnAddedOne) {
  const auto status = [](const std::string& more) {
    auto spec = ParseTokenizerJson(
        R"({"model":{"type":"BPE","unk_token":"<u>","vocab":{"a":0},"merges":[]})" + more + "}");
    return spec.status();
  };
  EXPECT_EQ(status("").code(), kTokenizerInvalid);
  EXPECT_TRUE(status(R"(,"added_tokens":[{"id":1,"content":"<u>"}])").ok());
  EXPECT_TRUE(
      status(R"(,"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"})").ok());
}

}  // namespace
}  // namespace forebay::text
