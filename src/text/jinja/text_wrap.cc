// Python's textwrap.wrap, with white space and tabs as they are.
#include <algorithm>
#include <deque>

#include "text/jinja/text_ops.h"
#include "text/unicode/unicode.h"

namespace forebay::text::jinja {
namespace {

// A line by characters.
class Line {
 public:
  Line(Runtime& rt, const Value& line) : offsets_(CharOffsets(line.text())) {
    rt.ChargeBytes(32 * line.text().size());
    for (const char32_t c : CodePoints(line.text())) chars_.push_back(c);
  }

  size_t size() const { return chars_.size(); }
  size_t offset(size_t i) const { return offsets_[i]; }
  char32_t At(size_t i) const { return i < chars_.size() ? chars_[i] : U'\0'; }
  bool IsSpace(size_t i) const {
    const char32_t c = At(i);
    return c == ' ' || (c >= '\t' && c <= '\r');
  }
  bool IsBlank(size_t begin, size_t end) const {
    while (begin < end && IsSpace(begin)) ++begin;
    return begin == end;
  }
  // \w and [^\d\W] of Python's expressions.
  bool IsWord(size_t i) const { return At(i) == '_' || IsIn(kLetter | kNumber, At(i)); }
  bool IsLetter(size_t i) const { return IsWord(i) && !IsIn(Bit(Category::kNd), At(i)); }
  // A character behind which two hyphens are a dash between words.
  bool IsBeforeDash(size_t i) const {
    return IsWord(i) || std::u32string_view(U"!\"'&.,?").find(At(i)) != std::u32string_view::npos;
  }
  // Two hyphens or more from `i`, between words.
  bool IsDash(size_t i) const {
    size_t end = i;
    while (At(end) == '-') ++end;
    return end >= i + 2 && i > 0 && IsBeforeDash(i - 1) && IsWord(end);
  }
  // The hyphen at `i` ends a part of a word: two letters before it, or one and a short part, and
  // letters behind it.
  bool EndsPart(size_t i, size_t begin) const {
    const bool two = i >= 2 && IsLetter(i - 1) && IsLetter(i - 2);
    const bool one = i >= 3 && IsBeforeDash(i - 1) && At(i - 2) == '-' && IsLetter(i - 3);
    const bool goes_on =
        IsLetter(i + 1) && (IsLetter(i + 2) || (At(i + 2) == '-' && IsLetter(i + 3)));
    return i > begin && At(i) == '-' && (two || one) && goes_on;
  }

 private:
  std::vector<uint32_t> offsets_;
  std::u32string chars_;
};

struct Chunk {
  size_t begin, end;
  int64_t size() const { return static_cast<int64_t>(end - begin); }
};

// White space, words, and parts of words.
std::deque<Chunk> Chunks(const Line& line, bool on_hyphens) {
  std::deque<Chunk> chunks;
  for (size_t begin = 0, end; begin < line.size(); begin = end) {
    end = begin + 1;
    if (line.IsSpace(begin)) {
      while (end < line.size() && line.IsSpace(end)) ++end;
    } else if (on_hyphens && line.IsDash(begin)) {
      while (line.At(end) == '-') ++end;
    } else {
      while (end < line.size() && !line.IsSpace(end)) {
        if (on_hyphens && line.EndsPart(end, begin)) {
          ++end;
          break;
        }
        if (on_hyphens && line.IsDash(end)) break;
        ++end;
      }
    }
    chunks.push_back({begin, end});
  }
  return chunks;
}

// Where a chunk that is longer than what is left of a line is cut.
size_t CutAt(const Line& line, const Chunk& chunk, int64_t left, const WrapStyle& style) {
  const size_t end = chunk.begin + static_cast<size_t>(left);
  if (!style.break_on_hyphens) return end;
  for (size_t i = end; i-- > chunk.begin + 1;) {
    if (line.At(i) != '-') continue;
    for (size_t j = chunk.begin; j < i; ++j) {
      if (line.At(j) != '-') return i + 1;
    }
    break;
  }
  return end;
}

}  // namespace

std::vector<Value> Wrap(Runtime& rt, const Value& text, const WrapStyle& style) {
  const Line line(rt, text);
  std::deque<Chunk> chunks = Chunks(line, style.break_on_hyphens);
  rt.Charge(chunks.size());
  std::vector<Value> lines;
  while (!chunks.empty()) {
    if (!lines.empty() && line.IsBlank(chunks[0].begin, chunks[0].end)) chunks.pop_front();
    std::vector<Chunk> taken;
    int64_t size = 0;
    while (!chunks.empty() && size + chunks[0].size() <= style.width) {
      size += chunks[0].size();
      taken.push_back(chunks[0]);
      chunks.pop_front();
    }
    if (!chunks.empty() && chunks[0].size() > style.width) {
      if (style.break_long_words) {
        const size_t cut = CutAt(line, chunks[0], style.width - size, style);
        taken.push_back({chunks[0].begin, cut});
        chunks[0].begin = cut;
      } else if (taken.empty()) {
        taken.push_back(chunks[0]);
        chunks.pop_front();
      }
    }
    if (!taken.empty() && line.IsBlank(taken.back().begin, taken.back().end)) taken.pop_back();
    if (taken.empty()) continue;
    rt.Charge(1);
    lines.push_back(
        Substring(rt.arena, text, line.offset(taken.front().begin), line.offset(taken.back().end)));
  }
  return lines;
}

}  // namespace forebay::text::jinja
