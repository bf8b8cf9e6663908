#include "text/unicode/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "text/unicode/unicode_tables.h"

namespace forebay::text {
namespace {

using tables::CaseExpansion;
using tables::CaseRun;
using tables::CodePointRange;

// For each block of 256 code points the run that its first one lies in, and one past the last
// block.
constexpr size_t kBlocks = (kMaxCodePoint >> 8) + 1;
constexpr auto kBlockRun = [] {
  std::array<uint16_t, kBlocks + 1> out{};
  size_t run = 0;
  for (size_t block = 0; block < kBlocks; ++block) {
    while (run + 1 < std::size(tables::kCategoryRuns) &&
           (tables::kCategoryRuns[run + 1] >> 5) <= block << 8)
      ++run;
    out[block] = static_cast<uint16_t>(run);
  }
  out[kBlocks] = static_cast<uint16_t>(std::size(tables::kCategoryRuns) - 1);
  return out;
}();

constexpr auto kAsciiCategory = [] {
  std::array<Category, 128> out{};
  size_t run = 0;
  for (uint32_t c = 0; c < out.size(); ++c) {
    while ((tables::kCategoryRuns[run + 1] >> 5) <= c) ++run;
    out[c] = static_cast<Category>(tables::kCategoryRuns[run] & 31);
  }
  return out;
}();

bool Contains(std::span<const CodePointRange> ranges, char32_t c) {
  const auto it =
      std::upper_bound(ranges.begin(), ranges.end(), c,
                       [](char32_t x, const CodePointRange& range) { return x < range.first; });
  return it != ranges.begin() && c <= std::prev(it)->last;
}

// One of the three mappings: runs of single code points, and expansions.
struct CaseTable {
  std::span<const CaseRun> runs;
  std::span<const CaseExpansion> expansions;

  // Appends what `c` maps to; false if this table does not mention it.
  bool Append(std::string* out, char32_t c) const {
    const auto run = std::upper_bound(runs.begin(), runs.end(), c,
                                      [](char32_t x, const CaseRun& r) { return x < r.first; });
    if (run != runs.begin()) {
      const CaseRun& r = *std::prev(run);
      if (c <= r.last && (c - r.first) % r.stride == 0) {
        AppendUtf8(out, static_cast<char32_t>(static_cast<int32_t>(c) + r.delta));
        return true;
      }
    }
    const auto it = std::lower_bound(expansions.begin(), expansions.end(), c,
                                     [](const CaseExpansion& e, char32_t x) { return e.from < x; });
    if (it == expansions.end() || it->from != c) return false;
    for (const uint32_t to : it->to) {
      if (to != 0) AppendUtf8(out, to);
    }
    return true;
  }
};

constexpr CaseTable kUpper{tables::kUpperRuns, tables::kUpperExpansions};
constexpr CaseTable kLower{tables::kLowerRuns, tables::kLowerExpansions};
constexpr CaseTable kTitle{tables::kTitleRuns, tables::kTitleExpansions};

void AppendUpper(std::string* out, char32_t c) {
  if (!kUpper.Append(out, c)) AppendUtf8(out, c);
}

void AppendTitle(std::string* out, char32_t c) {
  if (!kTitle.Append(out, c)) AppendUpper(out, c);
}

// Lower-cases one text from front to back. It knows what stood before a capital sigma and looks
// ahead for what follows: the sigma is final after a cased and before no cased character,
// case-ignorable ones not counted.
class LowerCaser {
 public:
  explicit LowerCaser(std::string_view text) : text_(text) {}

  // `end` is the offset just past c.
  void Append(std::string* out, char32_t c, size_t end) {
    if (c == 0x3A3) {
      AppendUtf8(out, after_cased_ && !BeforeCased(end) ? 0x3C2 : 0x3C3);
    } else if (!kLower.Append(out, c)) {
      AppendUtf8(out, c);
    }
    Note(c);
  }
  void Note(char32_t c) {
    if (!IsCaseIgnorable(c)) after_cased_ = IsCased(c);
  }

 private:
  // Remembers the answer for the run of case-ignorable characters it had to skip, so that a text of
  // nothing but such characters and sigmas stays linear.
  bool BeforeCased(size_t i) {
    if (i < looked_from_ || i > looked_to_) {
      looked_from_ = i;
      looked_to_ = i;
      before_cased_ = false;
      for (size_t k = i; k < text_.size();) {
        const char32_t c = DecodeUtf8(text_, &k);
        if (IsCaseIgnorable(c)) {
          looked_to_ = k;
          continue;
        }
        before_cased_ = IsCased(c);
        break;
      }
    }
    return before_cased_;
  }

  std::string_view text_;
  bool after_cased_ = false;
  bool before_cased_ = false;
  size_t looked_from_ = 1, looked_to_ = 0;
};

// The length of the valid sequence at text[i], or minus the number of bytes to replace by one
// U+FFFD. `more`: the bytes there are valid so far and the text ends before the sequence does.
int SequenceLength(std::string_view text, size_t i, bool* more) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  *more = false;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (int k = 1; k < length; ++k) {
    if (i + k >= text.size()) {
      *more = true;
      return -k;
    }
    if (byte(i + k) < low || byte(i + k) > high) return -k;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

}  // namespace

Category CategoryOf(char32_t c) {
  if (c < 128) return kAsciiCategory[c];
  if (c > kMaxCodePoint) return Category::kCn;
  const uint32_t* first = tables::kCategoryRuns + kBlockRun[c >> 8];
  const uint32_t* last = tables::kCategoryRuns + kBlockRun[(c >> 8) + 1] + 1;
  const uint32_t* run = std::upper_bound(first, last, static_cast<uint32_t>(c) << 5 | 31) - 1;
  return static_cast<Category>(*run & 31);
}

bool IsCased(char32_t c) { return Contains(tables::kCased, c); }
bool IsCaseIgnorable(char32_t c) { return Contains(tables::kCaseIgnorable, c); }

std::string ToUpper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : CodePoints(text)) AppendUpper(&out, c);
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  LowerCaser lower(text);
  for (size_t i = 0; i < text.size();) {
    const char32_t c = DecodeUtf8(text, &i);
    lower.Append(&out, c, i);
  }
  return out;
}

std::string ToTitle(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  LowerCaser lower(text);
  bool after_cased = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = DecodeUtf8(text, &i);
    if (after_cased) {
      lower.Append(&out, c, i);
    } else {
      AppendTitle(&out, c);
      lower.Note(c);
    }
    after_cased = IsCased(c);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  LowerCaser lower(text);
  for (size_t i = 0; i < text.size();) {
    const bool first = i == 0;
    const char32_t c = DecodeUtf8(text, &i);
    if (first) {
      AppendTitle(&out, c);
      lower.Note(c);
    } else {
      lower.Append(&out, c, i);
    }
  }
  return out;
}

char32_t DecodeUtf8(std::string_view text, size_t* i) {
  const auto byte = [&](size_t k) -> char32_t { return static_cast<unsigned char>(text[*i + k]); };
  if (byte(0) < 0x80) return static_cast<unsigned char>(text[(*i)++]);
  bool more;
  const int length = SequenceLength(text, *i, &more);
  char32_t c = kReplacement;
  if (length == 2) c = (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
  if (length == 3) c = (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  if (length == 4)
    c = (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  *i += length > 0 ? length : -length;
  return c;
}

void AppendUtf8(std::string* out, char32_t c) {
  if (c > kMaxCodePoint || (c >= 0xD800 && c <= 0xDFFF)) c = kReplacement;
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
    return;
  }
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | (c >> shift & 0x3F)));
  };
  if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    tail(6);
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    tail(12);
    tail(6);
  }
  tail(0);
}

bool IsValidUtf8(std::string_view text) {
  bool more;
  for (size_t i = 0; i < text.size();) {
    const int length = SequenceLength(text, i, &more);
    if (length < 0) return false;
    i += length;
  }
  return true;
}

std::string ToValidUtf8(std::string_view text) {
  if (IsValidUtf8(text)) return std::string(text);
  std::string out;
  for (const char32_t c : CodePoints(text)) AppendUtf8(&out, c);
  return out;
}

size_t CompleteUtf8Prefix(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t i = text.size() - back;
    if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;
    bool more;
    const int length = SequenceLength(text, i, &more);
    return more && static_cast<size_t>(-length) == back ? i : text.size();
  }
  return text.size();
}

}  // namespace forebay::text
