#include "text/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace forebay::text {
namespace {

using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string_view>;

// A small vocabulary with scores, as sentencepiece makes them: greater is better.
struct Scored {
  Texts tokens = {"<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "▁",   "a",
                  "b",     "c",   "ab",   "bc",     "▁a",     "▁ab", "<x>"};
  std::vector<int64_t> types = {2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, 4};
  std::vector<double> scores = {0, 0, 0, 0, 0, -9, -9, -9, -9, -1, -1, -2, -3, 0};
  GgufTokenizer Gguf() const {
    GgufTokenizer gguf;
    gguf.model = "llama";
    gguf.tokens = tokens;
    gguf.token_types = types;
    gguf.scores = scores;
    gguf.bos_token_id = 1;
    gguf.eos_token_id = 2;
    gguf.unknown_token_id = 0;
    return gguf;
  }
};

std::unique_ptr<Tokenizer> Make(const GgufTokenizer& gguf) {
  auto spec = SpecFromGguf(gguf);
  EXPECT_TRUE(spec.ok()) << spec.status().ToString();
  auto made = Tokenizer::FromSpec(std::move(*spec));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(*made);
}

TEST(GgufTokenizer, MergesByScore) {
  const Scored scored;
  GgufTokenizer gguf = scored.Gguf();
  gguf.add_space_prefix = false;
  gguf.add_bos_token = false;
  const auto t = Make(gguf);
  EXPECT_EQ(t->Encode("abc"), (Ids{9, 8}));  // ab and bc score alike: the leftmost
  EXPECT_EQ(t->Encode("bcab"), (Ids{10, 9}));
  EXPECT_EQ(t->Encode(" ab"), Ids{12});  // ab before ▁a, then ▁ab
  EXPECT_EQ(t->Encode(" abc"), (Ids{12, 8}));
  EXPECT_EQ(t->Encode("é"), (Ids{3, 4}));
  EXPECT_EQ(t->Encode("zz"), Ids{0});  // no byte tokens: unknown, fused
  EXPECT_EQ(t->Encode("a<x>b</s>"), (Ids{6, 13, 7, 2}));
  EXPECT_EQ(t->Decode(Ids{12, 3, 4}, false), " abé");
}

TEST(GgufTokenizer, MergesPiecesInTheFilesOrder) {
  const Scored scored;
  const Texts merges = {"b c", "a b", "▁ a", "▁a b"};
  GgufTokenizer gguf = scored.Gguf();
  gguf.model = "gemma4";
  gguf.scores = {};
  gguf.merges = merges;
  gguf.add_space_prefix = false;
  gguf.add_bos_token = false;
  const auto t = Make(gguf);
  EXPECT_EQ(t->Encode("abc"), (Ids{6, 10}));      // bc before ab
  EXPECT_EQ(t->Encode(" ab"), (Ids{5, 9}));       // ab before ▁a
  EXPECT_EQ(t->Encode("é<x>"), (Ids{3, 4, 13}));  // bytes, and a token of the file's own
  EXPECT_EQ(t->Decode(Ids{12, 3, 4}, false), " abé");
  const Texts unknown = {"b z"};
  gguf.merges = unknown;
  EXPECT_EQ(SpecFromGguf(gguf).status().code(), kTokenizerInvalid);
}

TEST(GgufTokenizer, DefaultsOfTheScoredModel) {
  const auto t = Make(Scored().Gguf());
  EXPECT_EQ(t->Encode("ab"), (Ids{1, 12}));  // BOS and a space in front
  EXPECT_EQ(t->Decode(t->Encode("ab"), true), "ab");
  EXPECT_EQ(t->bos(), 1);
  EXPECT_EQ(t->eos(), 2);
  EXPECT_TRUE(t->IsSpecial(1));
  EXPECT_FALSE(t->IsSpecial(13));
}

TEST(GgufTokenizer, EveryKnownPreMakesATokenizer) {
  const Texts tokens = {"a", "b", "1", "ab", "Ġ", "<e>"};
  const Texts merges = {"a b"};
  const std::vector<int64_t> types = {1, 1, 1, 1, 1, 3};
  GgufTokenizer gguf;
  gguf.model = "gpt2";
  gguf.tokens = tokens;
  gguf.merges = merges;
  gguf.token_types = types;
  for (const std::string_view pre : GgufPreNames()) {
    gguf.pre = pre;
    const auto t = Make(gguf);
    EXPECT_EQ(t->Encode("ab1 ab<e>"), (Ids{3, 2, 4, 3, 5})) << pre;
    EXPECT_EQ(t->Decode(Ids{3, 4, 5}, false), "ab <e>");
  }
}

// A byte-level file; `types` may be empty.
struct ByteLevel {
  Texts tokens = {"a", "b", "<|im_end|>", "<end_of_turn>", "<e>"};
  std::vector<int64_t> types = {1, 1, 1, 4, 3};
  GgufTokenizer Gguf() const {
    GgufTokenizer gguf;
    gguf.model = "gpt2";
    gguf.pre = "qwen2";
    gguf.tokens = tokens;
    gguf.token_types = types;
    gguf.eos_token_id = 4;
    gguf.padding_token_id = 0;
    return gguf;
  }
};

TEST(GgufTokenizer, NamesThatEndATurnEndAnAnswerAndAreControl) {
  ByteLevel file;
  GgufTokenizer gguf = file.Gguf();
  auto spec = SpecFromGguf(gguf);
  ASSERT_EQ(spec->warnings.size(), 1u);
  EXPECT_NE(spec->warnings[0].find("\"<|im_end|>\": taken for control"), std::string::npos)
      << spec->warnings[0];
  auto t = Make(gguf);
  EXPECT_EQ(t->ends(), (Ids{2, 3, 4}));
  EXPECT_EQ(t->Encode("a<|im_end|>"), (Ids{0, 2}));
  EXPECT_TRUE(t->IsSpecial(2));
  EXPECT_FALSE(t->IsSpecial(3));  // user-defined: found, but shown
  const std::vector<std::pair<std::string, std::string>> named = {{"eos_token", "<e>"},
                                                                  {"pad_token", "a"}};
  EXPECT_EQ(t->named(), named);

  gguf.eot_token_id = 1;  // the file says what ends a turn
  gguf.eom_token_id = 0;
  EXPECT_EQ(Make(gguf)->ends(), (Ids{4, 1, 0}));

  file.types.clear();
  gguf = file.Gguf();
  spec = SpecFromGguf(gguf);
  ASSERT_EQ(spec->warnings.size(), 1u);
  EXPECT_NE(spec->warnings[0].find("says nothing of \"<|im_end|>\", \"<end_of_turn>\""),
            std::string::npos)
      << spec->warnings[0];
  EXPECT_EQ(Make(gguf)->Encode("<end_of_turn>"), Ids{3});
}

TEST(GgufTokenizer, AFileThatDoesNotSayHowTextIsSplitCostsAWarning) {
  const ByteLevel file;
  GgufTokenizer gguf = file.Gguf();
  gguf.eot_token_id = 2;
  for (const char* pre : {"", "default"}) {
    gguf.pre = pre;
    const auto spec = SpecFromGguf(gguf);
    EXPECT_NE(spec->warnings.front().find("tokenizer.ggml.pre is"), std::string::npos) << pre;
  }
  gguf.pre = "gpt-2";
  EXPECT_EQ(SpecFromGguf(gguf)->warnings.size(), 1u);  // the type of <|im_end|>
}

// The pieces of a text, by a vocabulary in which every merge is allowed that does not cross pieces.
TEST(GgufTokenizer, PresSplitAsTheirModelsDo) {
  const Texts tokens = {"a", "1", "!", "Ġ", "Ċ", "11", "!!", "Ġ!", "!Ċ", "aĊ", "Ġa", "a1", "Ġ1"};
  const Texts merges = {"1 1", "! !", "Ġ !", "! Ċ", "a Ċ", "Ġ a", "a 1", "Ġ 1"};
  const struct {
    const char* pre;
    const char* text;
    Ids ids;
  } cases[] = {
      {"llama-v3", "11!\n a", {5, 8, 10}},
      {"smaug-bpe", "11!\n a", {5, 8, 10}},
      {"falcon3", "11 !", {5, 7}},
      {"pixtral", "11 !", {5, 7}},
      {"deepseek-r1-qwen", "11!\n", {1, 1, 8}},
      {"megrez", "11!\n", {1, 1, 8}},
      {"qwen35", "11!\n a", {1, 1, 8, 10}},
      {"seed-coder", "11!\n", {1, 1, 2, 4}},
      {"llama4", "11!\n", {5, 8}},
      {"deepseek-llm", "11 !!\n a", {1, 1, 3, 6, 4, 10}},
      {"deepseek-coder", "11!\n a", {1, 1, 2, 4, 10}},
  };
  for (const auto& [pre, text, ids] : cases) {
    GgufTokenizer gguf;
    gguf.model = "gpt2";
    gguf.pre = pre;
    gguf.tokens = tokens;
    gguf.merges = merges;
    EXPECT_EQ(Make(gguf)->Encode(text), ids) << pre;
  }
}

// What the models' own expressions make of a text: those of Kimi K2 (whose Han characters stand
// alone), of MiniMax-M2, and GPT-2's.
TEST(GgufTokenizer, PresMakeTheWordsOfTheirModels) {
  const Texts gpt2 = {"x漢字HelloWorld", "'s", " 12345", " ", " //", "\n ", " é"};
  const struct {
    Texts pres;
    Texts words;
  } cases[] = {
      {{"kimi-k2"}, {"x", "漢字", "Hello", "World's", " ", "123", "45"}},
      {{"kimi-k2"}, {" ", " ", "漢字", "かな", "!／\n\n", " ", "々〇〡⺀", " a"}},
      {{"kimi-k2"}, {"한국어", "漢\U00020000\U000323AF", "é"}},
      {{"kimi-k2"}, {"I'LL", " ", "\u3000", "漢", " don't", "//\n"}},
      {{"minimax-m2"}, {"x漢字", "Hello", "World's", " ", "123", "45", "//\n", " ", " é"}},
      {{"olmo", "exaone4", "granite-docling"}, gpt2},
  };
  const Texts tokens = {"a"};
  for (const auto& [pres, words] : cases) {
    std::string text;
    for (const std::string_view word : words) text += word;
    for (const std::string_view pre : pres) {
      GgufTokenizer gguf;
      gguf.model = "gpt2";
      gguf.pre = pre;
      gguf.tokens = tokens;
      const auto split = PreTokenizer::Create(SpecFromGguf(gguf)->pre_tokenizers);
      ASSERT_TRUE(split.ok()) << split.status().ToString();
      std::vector<std::string> found;
      split->Split(text, true, [&](std::string_view word) { found.emplace_back(word); });
      EXPECT_EQ(found, std::vector<std::string>(words.begin(), words.end())) << pre;
    }
  }
}

TEST(GgufTokenizer, Errors) {
  const Scored good;
  const Texts merges = {"a z"};
  const std::vector<int64_t> short_types = {1};
  std::vector<double> nan = good.scores;
  nan[3] = std::numeric_limits<double>::quiet_NaN();
  const std::string long_token(2000, 'a');
  Texts long_tokens = good.tokens;
  long_tokens[9] = long_token;
  const struct {
    void (*change)(GgufTokenizer*, const std::vector<int64_t>&, const std::vector<double>&,
                   const Texts&, const Texts&);
    base::ErrorCode code;
    const char* words;
  } cases[] = {
      {[](auto* g, auto&, auto&, auto&, auto&) { g->tokens = {}; }, kTokenizerInvalid,
       "tokens is missing"},
      {[](auto* g, auto&, auto&, auto&, auto&) { g->model = "bert"; }, kTokenizerUnsupported,
       "model is \"bert\""},
      {[](auto* g, auto&, auto&, auto&, auto&) { g->model = ""; }, kTokenizerUnsupported,
       "model is \"\""},
      {[](auto* g, auto&, auto&, auto&, auto&) {
         g->model = "gpt2";
         g->pre = "falcon";
       },
       kTokenizerUnsupported, "pre is \"falcon\"; known are default"},
      {[](auto* g, auto& types, auto&, auto&, auto&) { g->token_types = types; }, kTokenizerInvalid,
       "1 values for 14"},
      {[](auto* g, auto&, auto&, auto&, auto&) { g->scores = {}; }, kTokenizerInvalid,
       "scores is missing"},
      {[](auto* g, auto&, auto& scores, auto&, auto&) { g->scores = scores; }, kTokenizerInvalid,
       "NaN"},
      {[](auto* g, auto&, auto&, auto& merges, auto&) {
         g->model = "gpt2";
         g->merges = merges;
       },
       kTokenizerInvalid, "needs the token \"z\""},
      {[](auto* g, auto&, auto&, auto&, auto& tokens) { g->tokens = tokens; }, kTokenizerInvalid,
       "2000 bytes"},
      {[](auto* g, auto&, auto&, auto&, auto&) { g->bos_token_id = 14; }, kTokenizerInvalid,
       "bos_token_id is 14"},
      {[](auto* g, auto&, auto&, auto&, auto&) { g->unknown_token_id = 1ull << 63; },
       kTokenizerInvalid, "unknown_token_id"},
  };
  for (const auto& [change, code, words] : cases) {
    GgufTokenizer gguf = good.Gguf();
    change(&gguf, short_types, nan, merges, long_tokens);
    const auto spec = SpecFromGguf(gguf);
    EXPECT_EQ(std::string(spec.status().code().name), code.name) << words;
    EXPECT_NE(spec.status().message().find(words), std::string::npos) << spec.status().ToString();
  }
}

}  // namespace
}  // namespace forebay::text
