#include "text/unicode/unicode.h"

#include <gtest/gtest.h>

namespace forebay::text {
namespace {

TEST(Unicode, CategoriesAreThoseOfVersion16) {
  EXPECT_EQ(CategoryOf('A'), Category::kLu);
  EXPECT_EQ(CategoryOf('_'), Category::kPc);
  EXPECT_EQ(CategoryOf(0), Category::kCc);
  EXPECT_EQ(CategoryOf(0x01C5), Category::kLt);
  EXPECT_EQ(CategoryOf(0x4E00), Category::kLo);
  EXPECT_EQ(CategoryOf(0x10D50), Category::kLu);
  EXPECT_EQ(CategoryOf(0x10940), Category::kCn);
  EXPECT_EQ(CategoryOf(0x323B0), Category::kCn);
  EXPECT_EQ(CategoryOf(0xD800), Category::kCs);
  EXPECT_EQ(CategoryOf(0x10FFFD), Category::kCo);
  EXPECT_EQ(CategoryOf(0x10FFFF), Category::kCn);
  EXPECT_EQ(CategoryOf(0x110000), Category::kCn);
  int letters = 0, numbers = 0;
  for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
    letters += IsIn(kLetter, c);
    numbers += IsIn(kNumber, c);
  }
  // Counted in Python with unicodedata2 16.0.0.
  EXPECT_EQ(letters, 141028);
  EXPECT_EQ(numbers, 1911);
}

TEST(Unicode, WhiteSpace) {
  for (const char32_t c : {0x09, 0x0D, 0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x3000})
    EXPECT_TRUE(IsWhiteSpace(c)) << uint32_t{c};
  for (const char32_t c : {0x00, 0x1C, 0x1F, 0x180E, 0x200B, 0xFEFF})
    EXPECT_FALSE(IsWhiteSpace(c)) << uint32_t{c};
}

TEST(Unicode, CaseMappingIsFull) {
  EXPECT_EQ(ToUpper("straße ﬁ ŉ ǆ ÿ"), "STRASSE FI ʼN Ǆ Ÿ");
  EXPECT_EQ(ToLower("ÀÉÎ İ Ǆ K"), "àéî i̇ ǆ k");
  EXPECT_EQ(ToLower("ΟΔΟΣ ΟΔΟΣ. ΣΑΣ Σ"), "οδος οδος. σας σ");
  EXPECT_EQ(ToTitle("they're ǆ ß 3rd ﬁn ΟΔΟΣ"), "They'Re ǅ Ss 3Rd Fin Οδος");
  EXPECT_EQ(Capitalize("ǆ ABC"), "ǅ abc");
  EXPECT_EQ(ToLower("𐵐Ꟙ"), "𐵰ꟙ");
  EXPECT_EQ(ToUpper("ƛ"), "Ƛ");
  EXPECT_EQ(ToUpper(""), "");
}

TEST(Unicode, InvalidUtf8BecomesReplacements) {
  const std::string_view cases[][2] = {
      {"a\xFF"
       "b",
       "a\uFFFDb"},
      {"\xE4\xBD", "\uFFFD"},
      {"\xE4\xBD\x41", "\uFFFD\x41"},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", "\uFFFD\U0001F600"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
  };
  for (const auto& [in, out] : cases) {
    EXPECT_FALSE(IsValidUtf8(in));
    EXPECT_EQ(ToValidUtf8(in), out);
  }
}

TEST(Unicode, CompletePrefixHoldsBackOnlyWhatMayBecomeValid) {
  EXPECT_EQ(CompleteUtf8Prefix(""), 0u);
  EXPECT_EQ(CompleteUtf8Prefix("a\xE4"), 1u);
  EXPECT_EQ(CompleteUtf8Prefix("a\xE4\xBD"), 1u);
  EXPECT_EQ(CompleteUtf8Prefix("a\xE4\xBD\xA0"), 4u);
  EXPECT_EQ(CompleteUtf8Prefix("\xF0\x9F\x98"), 0u);
  EXPECT_EQ(CompleteUtf8Prefix("\xF0\x80"), 2u);
  EXPECT_EQ(CompleteUtf8Prefix("\x80\x80\x80"), 3u);
  EXPECT_EQ(CompleteUtf8Prefix("\xFF"), 1u);
}

}  // namespace
}  // namespace forebay::text
