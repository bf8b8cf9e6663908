#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "text/unicode/regex.h"
#include "text/unicode/unicode.h"

namespace forebay::text {
namespace {

using Behavior = PreTokenizerStep::Behavior;
using Kind = PreTokenizerStep::Kind;

std::vector<std::string> Words(const std::vector<PreTokenizerStep>& steps, std::string_view text) {
  auto made = PreTokenizer::Create(steps);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  std::vector<std::string> words;
  if (made.ok()) made->Split(text, true, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

// Texts of characters that the patterns tell apart, long runs and borders among them.
std::string RandomText(base::Rng* rng) {
  static constexpr char32_t kCharacters[] = {
      'a',    'Z',    's',    'T',    'r',    'e',     'l',     'v',     'm',     'd',
      '\'',   ' ',    ' ',    '\n',   '\r',   '\t',    '1',     '9',     '_',     '.',
      '$',    '<',    0x00,   0x1C,   0x85,   0xA0,    0xC9,    0xB2,    0x17F,   0x1C5,
      0x301,  0x660,  0x2028, 0x200B, 0x2019, 0x20AC,  0x212A,  0x3000,  0x3042,  0x30FC,
      0x4E00, 0x9FA5, 0x9FA6, 0xE000, 0xFFFD, 0x10D50, 0x10940, 0x1F600, 0x1D7D8, 0x10FFFF};
  std::string text;
  for (uint64_t count = rng->Below(24); count > 0; --count) {
    const char32_t c = kCharacters[rng->Below(std::size(kCharacters))];
    for (uint64_t repeat = rng->Below(8) == 0 ? rng->Below(6) : 1; repeat > 0; --repeat)
      AppendUtf8(&text, c);
  }
  return text;
}

TEST(KnownPatterns, SplitAsPcre2Does) {
  base::Rng rng(7);
  for (const char* pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern, kDeepSeekNumbersPattern,
                              kDeepSeekCjkPattern, kDeepSeekPattern}) {
    ASSERT_NE(KnownMatcher(pattern), nullptr);
    // The same expression in a group is none that the hand-written matchers know.
    const std::string unknown = "(?:" + std::string(pattern) + ")";
    ASSERT_EQ(KnownMatcher(unknown), nullptr);
    auto known_split = PreTokenizer::Create({{.kind = Kind::kSplit, .pattern = pattern}});
    auto regex_split = PreTokenizer::Create({{.kind = Kind::kSplit, .pattern = unknown}});
    ASSERT_TRUE(regex_split.ok()) << regex_split.status().ToString();
    for (int i = 0; i < 20000; ++i) {
      const std::string text = RandomText(&rng);
      std::vector<std::string> known, by_regex;
      known_split->Split(text, true, [&](std::string_view word) { known.emplace_back(word); });
      regex_split->Split(text, true, [&](std::string_view word) { by_regex.emplace_back(word); });
      ASSERT_EQ(known, by_regex) << pattern << " on " << testing::PrintToString(text);
    }
  }
}

TEST(PreTokenizer, Behaviors) {
  const auto split = [](Behavior behavior, bool invert) {
    return Words({{.kind = Kind::kSplit,
                   .pattern = "-",
                   .literal = true,
                   .invert = invert,
                   .behavior = behavior}},
                 "-a--b-c");
  };
  using Strings = std::vector<std::string>;
  // What Hugging Face's tokenizers gives.
  EXPECT_EQ(split(Behavior::kIsolated, false), (Strings{"-", "a", "-", "-", "b", "-", "c"}));
  EXPECT_EQ(split(Behavior::kRemoved, false), (Strings{"a", "b", "c"}));
  EXPECT_EQ(split(Behavior::kMergedWithPrevious, false), (Strings{"-", "a-", "-", "b-", "c"}));
  EXPECT_EQ(split(Behavior::kMergedWithNext, false), (Strings{"-a", "-", "-b", "-c"}));
  EXPECT_EQ(split(Behavior::kContiguous, false), (Strings{"-", "a", "--", "b", "-", "c"}));
  EXPECT_EQ(split(Behavior::kRemoved, true), (Strings{"-", "-", "-", "-"}));
}

TEST(PreTokenizer, StepsFollowEachOther) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(Words({{.kind = Kind::kDigits, .individual = true},
                   {.kind = Kind::kByteLevel, .gpt2_split = true}},
                  "a12 b"),
            (Strings{"a", "1", "2", " b"}));
  EXPECT_EQ(Words({{.kind = Kind::kDigits}}, "a12 b٣"), (Strings{"a", "12", " b", "٣"}));
  EXPECT_EQ(Words({{.kind = Kind::kByteLevel, .prefix_space = true, .gpt2_split = true}}, "a b"),
            (Strings{" a", " b"}));
  EXPECT_EQ(Words({{.kind = Kind::kMetaspace,
                    .prepend = PreTokenizerStep::Prepend::kAlways,
                    .split = true}},
                  "a b"),
            (Strings{"▁a", "▁b"}));
  EXPECT_EQ(Words({}, "a b"), (Strings{"a b"}));
}

TEST(Regex, ClassesAreThoseOfUnicode16) {
  auto letters = Regex::Compile("\\p{L}+");
  ASSERT_TRUE(letters.ok());
  const std::string text = "1\U00010D50a\U00010940";
  Regex::Matches matches(*letters, text);
  size_t begin = 0, end = 0;
  ASSERT_TRUE(matches.Next(&begin, &end));
  EXPECT_EQ(begin, 1u);
  EXPECT_EQ(end, 6u);
  EXPECT_FALSE(matches.Next(&begin, &end));
}

TEST(Regex, TekkenCompiles) { EXPECT_TRUE(Regex::Compile(kTekkenPattern).ok()); }

TEST(Regex, RefusesWhatItWouldReadDifferently) {
  for (const char* pattern :
       {"[[:alpha:]]", "[a&&b]", "\\h", "\\K", "\\p{Han}", "\\pL", "(?<name>a)", "(?m:.)",
        "(*FAIL)", "a{1,2}+", "[]a]", "\\", "(", "a**", "\\u12", "(?"}) {
    const auto made = Regex::Compile(pattern);
    EXPECT_FALSE(made.ok()) << pattern;
    EXPECT_EQ(std::string(made.status().code().name), kTokenizerUnsupported.name) << pattern;
  }
}

// Backtracking without end is cut off; what is left then is one word.
TEST(Regex, GivesUpOnHostilePatterns) {
  const std::string text(64, 'a');
  EXPECT_EQ(Words({{.kind = Kind::kSplit, .pattern = "(a+)+b"}}, text),
            std::vector<std::string>{text});
}

}  // namespace
}  // namespace forebay::text
