// Unicode 16: general categories, white space, full case mapping, UTF-8 in and out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace forebay::text {

// The order is that of CATEGORIES in tools/make_unicode_tables.py.
enum class Category : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo,
  kCn,
};

// A set of categories, one bit each.
using CategorySet = uint32_t;
constexpr CategorySet Bit(Category category) { return 1u << static_cast<int>(category); }
constexpr CategorySet CategoriesFrom(Category first, Category last) {
  return 2 * Bit(last) - Bit(first);
}
inline constexpr CategorySet kLetter = CategoriesFrom(Category::kLu, Category::kLo);
inline constexpr CategorySet kMark = CategoriesFrom(Category::kMn, Category::kMe);
inline constexpr CategorySet kNumber = CategoriesFrom(Category::kNd, Category::kNo);
inline constexpr CategorySet kPunctuation = CategoriesFrom(Category::kPc, Category::kPo);
inline constexpr CategorySet kSymbol = CategoriesFrom(Category::kSm, Category::kSo);
inline constexpr CategorySet kSeparator = CategoriesFrom(Category::kZs, Category::kZp);
inline constexpr CategorySet kOther = CategoriesFrom(Category::kCc, Category::kCn);

inline constexpr char32_t kMaxCodePoint = 0x10FFFF;
inline constexpr char32_t kReplacement = 0xFFFD;

// Code points above kMaxCodePoint are kCn.
Category CategoryOf(char32_t c);
inline bool IsIn(CategorySet set, char32_t c) { return (Bit(CategoryOf(c)) & set) != 0; }

// The property White_Space. (Python's str.isspace holds for U+001C..U+001F, too.)
constexpr bool IsWhiteSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

constexpr bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

// The properties Cased and Case_Ignorable.
bool IsCased(char32_t c);
bool IsCaseIgnorable(char32_t c);

// Full, locale-free case mapping of valid UTF-8, as Python's str methods do it (a final sigma
// included).
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
// str.title(): a cased character after one that is not cased is title case, the others are lower
// case.
std::string ToTitle(std::string_view text);
// str.capitalize(): the first character title case, the others lower case.
std::string Capitalize(std::string_view text);

// Reads the code point at text[*i] and advances *i past it. Where there is no valid sequence it
// returns U+FFFD and skips the longest prefix of one (at least one byte), as Python's
// errors="replace" does. REQUIRES: *i < text.size().
char32_t DecodeUtf8(std::string_view text, size_t* i);

// Appends the UTF-8 of `c`; surrogates and values above kMaxCodePoint become U+FFFD.
void AppendUtf8(std::string* out, char32_t c);

bool IsValidUtf8(std::string_view text);
// Every invalid sequence replaced by U+FFFD, as DecodeUtf8 finds them.
std::string ToValidUtf8(std::string_view text);
// Length of the longest prefix of `text` that does not end inside a sequence which more bytes could
// make valid.
size_t CompleteUtf8Prefix(std::string_view text);

// for (char32_t c : CodePoints(text)): the code points as DecodeUtf8 reads them. Borrows `text`.
class CodePoints {
 public:
  explicit CodePoints(std::string_view text) : text_(text) {}
  class Iterator {
   public:
    Iterator(std::string_view text, size_t i) : text_(text), i_(i), next_(i) { Read(); }
    char32_t operator*() const { return value_; }
    Iterator& operator++() {
      i_ = next_;
      Read();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return i_ != other.i_; }
    size_t offset() const { return i_; }

   private:
    void Read() {
      if (i_ < text_.size()) value_ = DecodeUtf8(text_, &next_);
    }
    std::string_view text_;
    size_t i_, next_;
    char32_t value_ = 0;
  };
  Iterator begin() const { return {text_, 0}; }
  Iterator end() const { return {text_, text_.size()}; }

 private:
  std::string_view text_;
};

}  // namespace forebay::text
