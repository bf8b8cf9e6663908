#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode/unicode.h"

namespace forebay::text {
namespace {

// \w of the reference's expressions: Alphabetic, marks, decimal digits, connectors and joiners.
bool IsWordCharacter(char32_t c) {
  constexpr CategorySet kWord =
      kLetter | kMark | Bit(Category::kNd) | Bit(Category::kNl) | Bit(Category::kPc);
  return IsIn(kWord, c) || c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

// The character that ends at text[end]. REQUIRES: end > 0, valid UTF-8.
char32_t CharacterBefore(std::string_view text, size_t end, size_t* begin) {
  size_t i = end - 1;
  while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
  *begin = i;
  return DecodeUtf8(text, &i);
}

bool HasWordBeside(std::string_view text, size_t begin, size_t end) {
  size_t i;
  if (begin > 0 && IsWordCharacter(CharacterBefore(text, begin, &i))) return true;
  i = end;
  return end < text.size() && IsWordCharacter(DecodeUtf8(text, &i));
}

// The start, not before `limit`, of the white space that ends at `begin`.
size_t StripLeft(std::string_view text, size_t begin, size_t limit) {
  size_t i;
  while (begin > limit && IsWhiteSpace(CharacterBefore(text, begin, &i))) begin = i;
  return begin;
}

size_t StripRight(std::string_view text, size_t end) {
  for (size_t i = end; i < text.size(); end = i) {
    if (!IsWhiteSpace(DecodeUtf8(text, &i))) break;
  }
  return end;
}

bool IsAllWhiteSpace(std::string_view text) {
  for (const char32_t c : CodePoints(text)) {
    if (!IsWhiteSpace(c)) return false;
  }
  return true;
}

}  // namespace

void AddedTokenMatcher::Add(std::string pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  const bool anywhere = !token.special && IsAllWhiteSpace(token.content);
  patterns_.push_back(
      {std::move(pattern), token.id, token.single_word, token.lstrip, token.rstrip, anywhere});
}

void AddedTokenMatcher::Finish() {
  std::reverse(patterns_.begin(), patterns_.end());
  std::stable_sort(patterns_.begin(), patterns_.end(),
                   [](const Pattern& a, const Pattern& b) { return a.text < b.text; });
  patterns_.erase(std::unique(patterns_.begin(), patterns_.end(),
                              [](const Pattern& a, const Pattern& b) { return a.text == b.text; }),
                  patterns_.end());
  for (const Pattern& pattern : patterns_)
    ++first_byte_[static_cast<unsigned char>(pattern.text[0]) + 1];
  for (int b = 0; b < 256; ++b) first_byte_[b + 1] += first_byte_[b];
}

// Narrows the sorted patterns byte by byte.
const AddedTokenMatcher::Pattern* AddedTokenMatcher::LongestAt(std::string_view text, size_t begin,
                                                               const ByteRanges& untrusted) const {
  const unsigned char first = static_cast<unsigned char>(text[begin]);
  const Pattern* low = patterns_.data() + first_byte_[first];
  const Pattern* high = patterns_.data() + first_byte_[first + 1];
  const Pattern* best = nullptr;
  for (size_t length = 1; low != high; ++length) {
    if (low->text.size() == length) {
      if (low->anywhere || !Overlaps(untrusted, begin, begin + length)) best = low;
      ++low;
    }
    if (begin + length >= text.size()) break;
    const unsigned char next = static_cast<unsigned char>(text[begin + length]);
    const auto byte = [length](const Pattern& pattern) {
      return static_cast<unsigned char>(pattern.text[length]);
    };
    low = std::partition_point(low, high,
                               [&](const Pattern& pattern) { return byte(pattern) < next; });
    high = std::partition_point(low, high,
                                [&](const Pattern& pattern) { return byte(pattern) == next; });
  }
  return best;
}

void AddedTokenMatcher::Cut(std::string_view text, const ByteRanges& untrusted,
                            const PieceSink& sink) const {
  size_t done = 0;
  for (size_t i = 0; i < text.size();) {
    const unsigned char b = static_cast<unsigned char>(text[i]);
    const Pattern* match =
        first_byte_[b] == first_byte_[b + 1] ? nullptr : LongestAt(text, i, untrusted);
    if (match == nullptr) {
      ++i;
      continue;
    }
    size_t begin = i, end = i + match->text.size();
    i = end;
    if (match->single_word && HasWordBeside(text, begin, end)) continue;
    if (match->lstrip) begin = StripLeft(text, begin, done);
    if (match->rstrip) end = StripRight(text, end);
    if (done < begin) sink(done, begin, -1);
    sink(begin, end, match->id);
    i = done = end;
  }
  if (done < text.size()) sink(done, text.size(), -1);
}

}  // namespace forebay::text
