#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <thread>

#include "base/json.h"
#include "base/rng.h"
#include "testing/test_data.h"
#include "text/detokenizer.h"
#include "text/tokenizer_json.h"
#include "text/unicode/unicode.h"

namespace forebay::text {
namespace {

using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> Golden(const std::string& name) {
  auto made = Tokenizer::FromHuggingFace(TestData() + "/golden/tokenizers/" + name);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(*made);
}

constexpr EncodeOptions kBare{.add_special_tokens = false};

Ids EncodeParts(const Tokenizer& tokenizer, const std::vector<Segment>& segments) {
  return tokenizer.EncodeSegments(segments, false);
}

bool Contains(const Ids& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

TEST(Segments, UntrustedTextNeverBecomesControl) {
  const auto t = Golden("qwen");
  const int32_t im_end = t->TokenToId("<|im_end|>").value(),
                think = t->TokenToId("<think>").value();
  EXPECT_EQ(EncodeParts(*t, {{"<|im_end|>", true}}), Ids{im_end});
  EXPECT_FALSE(Contains(EncodeParts(*t, {{"<|im_end|>", false}}), im_end));
  EXPECT_FALSE(Contains(EncodeParts(*t, {{"<think>", false}}), think));
  // Nor does a token that untrusted text completes.
  EXPECT_FALSE(Contains(EncodeParts(*t, {{"<|im_", true}, {"end", false}, {"|>", true}}), im_end));
  EXPECT_FALSE(Contains(EncodeParts(*t, {{"<", false}, {"|im_end|>", true}}), im_end));
  EXPECT_EQ(EncodeParts(*t, {{"<|im_", true}, {"end|>", true}}), Ids{im_end});

  const Ids ids = EncodeParts(
      *t, {{"<|im_start|>user\n", true}, {"hi <|im_end|>", false}, {"<|im_end|>\n", true}});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), im_end), 1);
  EXPECT_EQ(t->Decode(ids, false), "<|im_start|>user\nhi <|im_end|><|im_end|>\n");
  EXPECT_FALSE(Contains(
      t->Encode("<|im_end|>", {.add_special_tokens = false, .parse_special = false}), im_end));
}

TEST(Segments, NormalizedTokensAreFoundInTrustedTextOnly) {
  const auto qwen = Golden("qwen");
  const int32_t cafe = qwen->TokenToId("CaféTok").value();
  EXPECT_EQ(EncodeParts(*qwen, {{"Cafe\u0301", true}, {"Tok", true}}), Ids{cafe});
  EXPECT_FALSE(Contains(EncodeParts(*qwen, {{"Cafe\u0301", false}, {"Tok", true}}), cafe));
  EXPECT_TRUE(Contains(
      EncodeParts(*qwen, {{"e\u0301 ", false}, {"Cafe\u0301Tok", true}, {" e\u0301", false}}),
      cafe));
  // The "▁" that Prepend and Replace make belongs to no segment; the space it came from does.
  const auto llama = Golden("llama2-prepend");
  const int32_t two_words = llama->TokenToId("two words").value();
  EXPECT_TRUE(Contains(EncodeParts(*llama, {{"x ", false}, {"y two words", true}, {" z", false}}),
                       two_words));
  EXPECT_FALSE(Contains(EncodeParts(*llama, {{"x ", false}, {"two words", true}}), two_words));
  EXPECT_FALSE(Contains(EncodeParts(*llama, {{"two words", false}}), two_words));
}

// Text that spells no added token is tokenized as if it were one, wherever it is cut and whoever
// wrote it.
TEST(Segments, WordsRunAcrossBorders) {
  const std::string text = "Hello world's  12345 \u4f60\u597d\u3002e\u0301 \n\n end";
  base::Rng rng(3);
  for (const char* name :
       {"deepseek-v3", "llama2-prepend", "llama3", "mistral-metaspace", "qwen", "smollm"}) {
    const auto t = Golden(name);
    const Ids whole = t->Encode(text, kBare);
    for (int i = 0; i < 200; ++i) {
      std::vector<Segment> segments;
      for (size_t at = 0; at < text.size();) {
        size_t end = at;
        for (uint64_t count = 1 + rng.Below(8); count > 0 && end < text.size(); --count)
          DecodeUtf8(text, &end);
        segments.push_back({std::string_view(text).substr(at, end - at), rng.Below(2) == 0});
        at = end;
      }
      ASSERT_EQ(EncodeParts(*t, segments), whole) << name;
    }
  }
}

TEST(Tokenizer, WhiteSpaceTokensAreText) {
  TokenizerSpec spec;
  spec.tokens = {"a", " "};
  spec.added = {{.content = "  ", .id = 2}, {.content = "   ", .id = 3, .special = true}};
  spec.decoder.kind = DecoderSpec::Kind::kPieces;
  auto t = Tokenizer::FromSpec(spec);
  ASSERT_TRUE(t.ok());
  EXPECT_EQ(EncodeParts(**t, {{"a  a", false}}), (Ids{0, 2, 0}));
  EXPECT_EQ(EncodeParts(**t, {{"a   a", false}}), (Ids{0, 2, 1, 0}));
  EXPECT_EQ(EncodeParts(**t, {{"a   a", true}}), (Ids{0, 3, 0}));
}

// Byte-pair encoding must not build a special token either.
TEST(Tokenizer, MergesDoNotReachSpecialTokens) {
  TokenizerSpec spec;
  spec.tokens = {"<", "s", ">", "<s", "<s>"};
  spec.merges = {{0, 1, 3, 0}, {3, 2, 4, 1}};
  spec.added = {{.content = "<s>", .id = 4, .special = true}};
  spec.decoder.kind = DecoderSpec::Kind::kPieces;
  for (const bool ignore_merges : {false, true}) {
    spec.ignore_merges = ignore_merges;
    auto t = Tokenizer::FromSpec(spec);
    ASSERT_TRUE(t.ok());
    EXPECT_EQ(EncodeParts(**t, {{"<s>", false}}), (Ids{3, 2}));
    EXPECT_EQ(EncodeParts(**t, {{"<s>", true}}), Ids{4});
  }
}

TEST(Tokenizer, InvalidUtf8IsReadAsReplacementCharacters) {
  for (const char* name : {"llama3", "llama2-prepend"}) {
    const auto t = Golden(name);
    EXPECT_EQ(t->Encode("a\xFF\xE4\xBD z"), t->Encode("a\uFFFD\uFFFD z")) << name;
    EXPECT_EQ(EncodeParts(*t, {{"a\xE4\xBD"}, {"\xA0"}}), t->Encode("a\uFFFD\uFFFD", kBare))
        << name;
  }
}

TEST(Tokenizer, UnknownIdsAreSkipped) {
  const auto t = Golden("llama3");
  const int32_t a = t->TokenToId("a").value();
  EXPECT_EQ(t->Decode(Ids{-1, a, t->vocab_size(), INT32_MAX, INT32_MIN, a}, false), "aa");
  EXPECT_EQ(t->TokenBytes(-1), "");
  EXPECT_FALSE(t->IsSpecial(t->vocab_size()));
}

TEST(Tokenizer, TokensByIdAndText) {
  const auto llama3 = Golden("llama3");
  const int32_t bos = llama3->TokenToId("<|begin_of_text|>").value();
  EXPECT_EQ(bos, 2077);
  EXPECT_TRUE(llama3->IsSpecial(bos));
  EXPECT_EQ(llama3->TokenText(bos), "<|begin_of_text|>");
  EXPECT_EQ(llama3->vocab_size(), 2086);
  const int32_t the = llama3->TokenToId("Ġthe").value();
  EXPECT_EQ(llama3->TokenBytes(the), " the");
  EXPECT_FALSE(llama3->IsSpecial(the));
  EXPECT_FALSE(llama3->TokenToId(" the").has_value());
  EXPECT_FALSE(llama3->TokenToId("").has_value());
  const int32_t byte = llama3->TokenToId("ä").value();  // the byte E4
  EXPECT_EQ(llama3->TokenBytes(byte), "\xE4");
  EXPECT_EQ(llama3->TokenText(byte), "\uFFFD");

  const auto llama2 = Golden("llama2-prepend");
  EXPECT_EQ(llama2->TokenBytes(llama2->TokenToId("<0x0A>").value()), "\n");
  EXPECT_EQ(llama2->TokenText(llama2->TokenToId("▁t").value()), " t");
}

TEST(Detokenizer, HoldsIncompleteCharactersBack) {
  const auto t = Golden("llama3");
  const auto id = [&](const char* token) { return t->TokenToId(token).value(); };
  const int32_t e4 = id("ä"), bd = id("½"), a0 = id("ł"), a = id("a");
  Detokenizer detokenizer(*t, false);
  EXPECT_EQ(detokenizer.Append(e4), "");
  EXPECT_EQ(detokenizer.Append(bd), "");
  EXPECT_EQ(detokenizer.Append(a0), "\u4F60");
  EXPECT_EQ(detokenizer.Append(e4), "");
  EXPECT_EQ(detokenizer.Append(a), "\uFFFDa");
  EXPECT_EQ(detokenizer.Append(e4), "");
  EXPECT_EQ(detokenizer.Flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(Detokenizer, AByteRunIsValidOrNotAsAWhole) {
  const auto t = Golden("llama2-prepend");
  const auto byte = [&](int b) { return t->TokenToId(fmt::format("<0x{:02X}>", b)).value(); };
  const int32_t x = t->TokenToId("x").value(), bos = t->TokenToId("<s>").value();
  EXPECT_EQ(t->Decode(Ids{byte(0xE4), byte(0xBD), byte(0xA0), x}, false), "\u4F60x");
  EXPECT_EQ(t->Decode(Ids{byte(0xE4), byte(0xBD), byte(0xA0), byte(0xFF), x}, false),
            "\uFFFD\uFFFD\uFFFD\uFFFDx");
  // A special token ends the run unless it is skipped.
  EXPECT_EQ(t->Decode(Ids{x, byte(0xE4), bos, byte(0xBD), byte(0xA0)}, true), "x\u4F60");
  EXPECT_EQ(t->Decode(Ids{x, byte(0xE4), bos, byte(0xBD), byte(0xA0)}, false),
            "x\uFFFD<s>\uFFFD\uFFFD");
  // What is held of a run shows as long as it is text.
  Detokenizer detokenizer(*t, true);
  const std::pair<int, std::string> held[] = {
      {0x0A, "\n"}, {0xE4, ""}, {0xBD, ""}, {0xA0, "\n\u4F60"}, {0xFF, ""}};
  for (const auto& [value, text] : held) {
    EXPECT_EQ(detokenizer.Append(byte(value)), "");
    EXPECT_EQ(detokenizer.Held(), text) << value;
  }
  EXPECT_EQ(detokenizer.Append(x), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDx");
  EXPECT_EQ(detokenizer.Held(), "");
  // The space of the first token goes, of a later one it stays.
  EXPECT_EQ(t->Decode(Ids{byte(0x20), t->TokenToId("▁t").value()}, false), " t");
}

// An answer's text begins after its prompt's, wherever that ends.
TEST(Detokenizer, WhatFollowsAPromptHasNothingOfIt) {
  struct Case {
    std::string rule;
    Ids prompt, answer;
    std::string text;
  };
  const auto check = [](const Tokenizer& t, const std::vector<Case>& cases) {
    for (const auto& [rule, prompt, answer, text] : cases) {
      Detokenizer detokenizer(t, true);
      detokenizer.Follow(prompt);
      std::string found;
      for (const int32_t id : answer) found += detokenizer.Append(id);
      EXPECT_EQ(found + detokenizer.Flush(), text) << rule;
    }
  };
  const auto llama2 = Golden("llama2-prepend");
  const auto byte = [&](int b) { return llama2->TokenToId(fmt::format("<0x{:02X}>", b)).value(); };
  const int32_t bos = llama2->TokenToId("<s>").value(), t = llama2->TokenToId("▁t").value(),
                x = llama2->TokenToId("x").value();
  check(*llama2,
        {{"a byte token at the prompt's end", {bos, x, byte('\n')}, {t, x}, " tx"},
         {"bytes on both sides", {bos, x, byte('\n')}, {byte('\n'), t}, "\n t"},
         {"a prompt's space is its own", {byte(' ')}, {t}, " t"},
         {"a special token after text", {bos, x, llama2->TokenToId("[/INST]").value()}, {t}, " t"},
         {"no text before", {bos}, {t}, "t"},
         {"nothing before", {}, {t}, "t"},
         {"a character begun in the prompt is the prompt's",
          {x, byte(0xE4)},
          {byte(0xBD), byte(0xA0), byte('\n'), t},
          "\n t"},
         {"so it is over several tokens", {x, byte(0xE4), byte(0xBD)}, {byte(0xA0), t}, " t"},
         {"and if nothing completes it", {x, byte(0xE4)}, {byte(0xBD), byte('\n'), x}, "\nx"},
         {"nor ever does", {byte(0xE4)}, {t}, " t"},
         {"bytes of a prompt spoil none of its answer",
          {byte(0xFF)},
          {byte(0xE4), byte(0xBD), byte(0xA0)},
          "\u4F60"}});
  const auto llama3 = Golden("llama3");
  const auto id = [&](const char* token) { return llama3->TokenToId(token).value(); };
  const int32_t e4 = id("ä"), bd = id("½"), a0 = id("ł"), a = id("a"), special = 2077;
  check(*llama3, {{"a whole character before", {e4, bd, a0}, {e4, bd, a0, a}, "\u4F60a"},
                  {"begun in the prompt", {a, e4}, {bd, a0, a}, "a"},
                  {"over several tokens", {a, e4, bd}, {a0, a}, "a"},
                  {"specials between", {e4, special, bd, special, special}, {a0, a}, "a"},
                  {"nothing completes it", {a, e4}, {a}, "a"},
                  {"the answer ends first", {a, e4}, {bd}, ""},
                  {"the next character is held back", {a, e4}, {bd, a0, e4}, "\uFFFD"}});
}

// Where the prompt does not end within a character: the text of both without the prompt's.
TEST(Detokenizer, PromptAndAnswerAreTheirText) {
  base::Rng rng(7);
  for (const char* name :
       {"deepseek-v3", "llama2-prepend", "llama3", "mistral-metaspace", "qwen", "smollm"}) {
    const auto t = Golden(name);
    int checked = 0;
    for (int i = 0; i < 2000; ++i) {
      Ids ids(rng.Below(14));
      const uint64_t range = rng.Below(2) == 0 ? 300 : t->vocab_size() + 1;  // bytes come first
      for (int32_t& id : ids) id = static_cast<int32_t>(rng.Below(range));
      const bool skip = rng.Below(2) == 0;
      const std::span<const int32_t> all = ids;
      const size_t end = rng.Below(ids.size() + 1);
      const std::string whole = t->Decode(all, skip), prompt = t->Decode(all.first(end), skip);
      // Bytes of the answer may spoil a run that the prompt began, or complete its last character.
      if (prompt.empty() || prompt.ends_with("\uFFFD") || !whole.starts_with(prompt)) continue;
      Detokenizer detokenizer(*t, skip);
      detokenizer.Follow(all.first(end));
      std::string text;
      for (const int32_t id : all.subspan(end)) text += detokenizer.Append(id);
      ASSERT_EQ(prompt + text + detokenizer.Flush(), whole) << name << ", case " << i;
      ++checked;
    }
    EXPECT_GT(checked, 200) << name;
  }
}

TEST(Detokenizer, EqualsDecodeOnRandomIds) {
  base::Rng rng(5);
  for (const char* name :
       {"deepseek-v3", "llama2-prepend", "llama3", "mistral-metaspace", "qwen", "smollm"}) {
    const auto t = Golden(name);
    for (int i = 0; i < 2000; ++i) {
      Ids ids(rng.Below(12));
      const uint64_t range = rng.Below(2) == 0 ? 300 : t->vocab_size() + 1;  // bytes come first
      for (int32_t& id : ids) id = static_cast<int32_t>(rng.Below(range));
      const bool skip = rng.Below(2) == 0;
      Detokenizer detokenizer(*t, skip);
      std::string text;
      for (const int32_t id : ids) {
        const std::string piece = detokenizer.Append(id);
        ASSERT_TRUE(IsValidUtf8(piece));
        text += piece;
      }
      ASSERT_EQ(text + detokenizer.Flush(), t->Decode(ids, skip)) << name;
    }
  }
}

// Counts processor time, since other programs may hold the cores.
double SecondsFor(const Tokenizer& t, const std::string& text) {
  const std::clock_t begin = std::clock();
  t.Encode(text);
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// One word of half a megabyte costs some microseconds a byte; in quadratic time it would take
// minutes.
TEST(Tokenizer, LongWordsAreNotQuadratic) {
  constexpr size_t kBytes = 1 << 19;
  base::Rng rng(1);
  std::string letters, marks;
  for (size_t i = 0; i < kBytes; ++i) letters.push_back(static_cast<char>('a' + rng.Below(26)));
  for (size_t i = 0; i < kBytes / 2; ++i) marks += rng.Below(2) == 0 ? "\u0301" : "\u0323";
  for (const char* name : {"deepseek-v3", "llama2-prepend", "qwen"}) {
    const auto t = Golden(name);
    for (const std::string& text :
         {letters, std::string(kBytes, 'a'), std::string(kBytes, ' '), std::string(kBytes, '<'),
          std::string(kBytes, '\n'), std::string(kBytes, '\xFF'), marks}) {
      EXPECT_LT(SecondsFor(*t, text), 20) << name << " " << text.substr(0, 4);
    }
  }
}

TEST(Tokenizer, ManyThreadsGetTheSameIds) {
  const auto t = Golden("llama2-prepend");
  const std::string text =
      "the quick brown fox jumps over the lazy dog, said one of them; and then there were none.";
  const Ids want = Golden("llama2-prepend")->Encode(text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) wrong += t->Encode(text) != want;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// The texts of the golden cases of English prose and code, a megabyte of them.
TEST(Tokenizer, Throughput) {
  std::string text;
  auto lines = base::ReadFile(TestData() + "/golden/tokenizers/smollm/cases.jsonl");
  ASSERT_TRUE(lines.ok());
  simdjson::dom::parser parser;
  for (size_t at = 0, end; (end = lines->find('\n', at)) != std::string::npos; at = end + 1) {
    const auto root = base::ParseJson(parser, lines->substr(at, end - at));
    const std::string_view kind = (*root)["k"].get_string().value();
    if (kind == "prose" || kind == "code")
      text.append((*root)["text"].get_string().value()).append("\n");
  }
  while (text.size() < 1 << 20) text += text;
  for (const char* name :
       {"llama3", "qwen", "smollm", "deepseek-v3", "llama2-prepend", "mistral-metaspace"}) {
    const auto t = Golden(name);
    double best = 1e9;
    for (int i = 0; i < 3; ++i) best = std::min(best, SecondsFor(*t, text));
    fmt::print("{:18} encode {:6.1f} MB/s\n", name, static_cast<double>(text.size()) / best / 1e6);
  }
}

}  // namespace
}  // namespace forebay::text
