// Hand-written matchers of the expressions in pre_tokenizer.h. pre_tokenizer_test.cc compares them
// with PCRE2.
#include <array>

#include "text/pre_tokenizer.h"
#include "text/unicode/unicode.h"

namespace forebay::text {
namespace {

// What the expressions ask of a character: its category, one bit, and two flags above them.
constexpr uint32_t kSpace = 1u << 30;
constexpr uint32_t kNewline = 1u << 31;
constexpr uint32_t kLetterOrNumber = kLetter | kNumber;

uint32_t Classify(char32_t c) {
  return Bit(CategoryOf(c)) | (IsWhiteSpace(c) ? kSpace : 0) |
         (c == '\r' || c == '\n' ? kNewline : 0);
}

// A text, read character by character.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {
    static const std::array<uint32_t, 128> ascii = [] {
      std::array<uint32_t, 128> out;
      for (char32_t c = 0; c < 128; ++c) out[c] = Classify(c);
      return out;
    }();
    ascii_ = ascii.data();
  }

  // The class of the character at `i`, 0 at the end; *next is the offset after it.
  uint32_t At(size_t i, size_t* next) const {
    if (i >= text_.size()) {
      *next = i;
      return 0;
    }
    const unsigned char b = static_cast<unsigned char>(text_[i]);
    *next = i + 1;
    if (b < 0x80) return ascii_[b];
    *next = i;
    return Classify(DecodeUtf8(text_, next));
  }
  uint32_t At(size_t i) const {
    size_t next;
    return At(i, &next);
  }
  char Byte(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }

  // The end of the run from `i` of characters in `set`, or (RunOutside) of characters not in it.
  size_t Run(size_t i, uint32_t set) const {
    for (size_t next; (At(i, &next) & set) != 0; i = next) {
    }
    return i;
  }
  size_t RunOutside(size_t i, uint32_t set) const {
    size_t next;
    for (uint32_t found; (found = At(i, &next)) != 0 && (found & set) == 0; i = next) {
    }
    return i;
  }

  // \s+(?!\S)|\s+ , after \s*[\r\n]+ if `newlines_first`. REQUIRES: white space at `i`.
  size_t WhiteSpace(size_t i, bool newlines_first) const {
    size_t end = i, last = i, after_newline = i, next;
    for (uint32_t found; ((found = At(end, &next)) & kSpace) != 0; end = next) {
      last = end;
      if ((found & kNewline) != 0) after_newline = next;
    }
    if (newlines_first && after_newline > i) return after_newline;
    return end == text_.size() || last == i ? end : last;
  }

 private:
  std::string_view text_;
  const uint32_t* ascii_;
};

// 's|'t|'re|'ve|'m|'ll|'d : the end, or `i` if there is none. REQUIRES: an apostrophe at `i`.
size_t Contraction(const Reader& reader, size_t i, bool ignore_case) {
  const auto lower = [&](size_t k) {
    const char c = reader.Byte(k);
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char a = lower(i + 1), b = lower(i + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
  const bool long_s = a == '\xC5' && b == '\xBF';  // U+017F, which folds to s
  return ignore_case && long_s ? i + 3 : i;
}

size_t MatchGpt2(std::string_view text, size_t begin) {
  const Reader reader(text);
  if (text[begin] == '\'') {
    const size_t end = Contraction(reader, begin, false);
    if (end > begin) return end;
  }
  const size_t start = begin + (text[begin] == ' ');
  const uint32_t found = reader.At(start);
  if ((found & kLetter) != 0) return reader.Run(start, kLetter);
  if ((found & kNumber) != 0) return reader.Run(start, kNumber);
  if (found != 0 && (found & kSpace) == 0)
    return reader.RunOutside(start, kSpace | kLetterOrNumber);
  return reader.WhiteSpace(begin, false);
}

template <int kMaxDigits>
size_t MatchLlama3(std::string_view text, size_t begin) {
  const Reader reader(text);
  if (text[begin] == '\'') {
    const size_t end = Contraction(reader, begin, true);
    if (end > begin) return end;
  }
  size_t next;
  const uint32_t found = reader.At(begin, &next);
  if ((found & kLetter) != 0) return reader.Run(next, kLetter);
  if ((found & kNumber) != 0) {
    for (int digits = 1; digits < kMaxDigits; ++digits) {
      size_t after;
      if ((reader.At(next, &after) & kNumber) == 0) break;
      next = after;
    }
    return next;
  }
  if ((found & kNewline) == 0 && (reader.At(next) & kLetter) != 0) return reader.Run(next, kLetter);
  const size_t start = begin + (text[begin] == ' ');
  const size_t end = reader.RunOutside(start, kSpace | kLetterOrNumber);
  if (end > start) return reader.Run(end, kNewline);
  return reader.WhiteSpace(begin, true);
}

size_t MatchDeepSeek(std::string_view text, size_t begin) {
  const Reader reader(text);
  const auto is_ascii_letter = [&](size_t i) {
    const char c = static_cast<char>(reader.Byte(i) | 0x20);
    return c >= 'a' && c <= 'z';
  };
  constexpr uint32_t kVisible = kPunctuation | kSymbol;
  size_t next;
  const uint32_t found = reader.At(begin, &next);
  if ((found & kVisible) != 0 && next == begin + 1 && is_ascii_letter(next)) {
    while (is_ascii_letter(next)) ++next;
    return next;
  }
  if ((found & (kLetter | kMark)) != 0) return reader.Run(begin, kLetter | kMark);
  if ((found & (kNewline | kVisible)) == 0 && (reader.At(next) & (kLetter | kMark)) != 0) {
    return reader.Run(next, kLetter | kMark);
  }
  const size_t start = begin + (text[begin] == ' ');
  const size_t end = reader.Run(start, kVisible);
  if (end > start) return reader.Run(end, kNewline);
  return (found & kSpace) != 0 ? reader.WhiteSpace(begin, true) : begin;
}

size_t MatchNumbers(std::string_view text, size_t begin) {
  const Reader reader(text);
  size_t end = begin, next;
  for (int digits = 0; digits < 3 && (reader.At(end, &next) & kNumber) != 0; ++digits) end = next;
  return end;
}

size_t MatchCjk(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t next = begin;
    const char32_t c = DecodeUtf8(text, &next);
    if (!((c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF))) break;
    begin = next;
  }
  return begin;
}

}  // namespace

MatchFunction KnownMatcher(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return MatchGpt2;
  if (pattern == kLlama3Pattern) return MatchLlama3<3>;
  if (pattern == kQwen2Pattern) return MatchLlama3<1>;
  if (pattern == kDeepSeekPattern) return MatchDeepSeek;
  if (pattern == kDeepSeekNumbersPattern) return MatchNumbers;
  if (pattern == kDeepSeekCjkPattern) return MatchCjk;
  return nullptr;
}

}  // namespace forebay::text
