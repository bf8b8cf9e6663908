#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/check.h"
#include "text/unicode/reference_ranges.h"
#include "text/unicode/unicode.h"

namespace forebay::text {
namespace {

// Builds the output of one step and maps the untrusted ranges of its input onto it.
class Rewriter {
 public:
  Rewriter(std::string_view in, const ByteRanges& untrusted) : in_(in), untrusted_(untrusted) {
    out_.reserve(in.size());
  }

  // The next `length` bytes of the input as they are.
  void Copy(size_t length) {
    const size_t end = at_ + length;
    for (; next_ < untrusted_.size() && untrusted_[next_].begin < end; ++next_) {
      const ByteRange& range = untrusted_[next_];
      const size_t base = out_.size() - at_;
      Mark(base + std::max(range.begin, at_), base + std::min(range.end, end));
      if (range.end > end) break;
    }
    out_ += in_.substr(at_, length);
    at_ = end;
  }
  // `content` in place of the next `length` bytes of the input.
  void Put(size_t length, std::string_view content) {
    const size_t end = at_ + length;
    while (next_ < untrusted_.size() && untrusted_[next_].end <= at_) ++next_;
    const bool mark = next_ < untrusted_.size() && untrusted_[next_].begin < end;
    if (mark) Mark(out_.size(), out_.size() + content.size());
    while (next_ < untrusted_.size() && untrusted_[next_].end <= end) ++next_;
    out_ += content;
    at_ = end;
  }
  bool done() const { return at_ >= in_.size(); }
  std::string_view rest() const { return in_.substr(at_); }
  std::string TakeText() { return std::move(out_); }
  ByteRanges TakeRanges() { return std::move(out_ranges_); }

 private:
  void Mark(size_t begin, size_t end) {
    if (begin >= end) return;
    if (!out_ranges_.empty() && out_ranges_.back().end >= begin) {
      out_ranges_.back().end = end;
    } else {
      out_ranges_.push_back({begin, end});
    }
  }

  std::string_view in_;
  const ByteRanges& untrusted_;
  size_t at_ = 0;    // how much of the input is done
  size_t next_ = 0;  // the first untrusted range that does not end before at_
  std::string out_;
  ByteRanges out_ranges_;
};

// Characters that are their own composed form and compose with none before them.
bool IsNfcBoundary(char32_t c) {
  return c < 0x300 || (c >= 0x400 && c <= 0x482) || (c >= 0x3041 && c <= 0x3096) ||
         (c >= 0x30A1 && c <= 0x30FA) || (c >= 0x3400 && c <= 0x9FFF) ||
         (c >= 0xAC00 && c <= 0xD7A3);
}

// Marks and parts of compositions that are not in Unicode 9. Found by trying every code point of
// Unicode 16 that has a combining class or a canonical decomposition with tokenizers 0.23.3.
bool CameAfterUnicode9(char32_t c) {
  if (c < 0x7fd) return false;
  static constexpr struct {
    char32_t first, last;
  } kRanges[] = {{0x7fd, 0x7fd},     {0x897, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
                 {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},
                 {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x105c9, 0x105c9},
                 {0x105d2, 0x105d2}, {0x105da, 0x105da}, {0x105e4, 0x105e4}, {0x10d24, 0x10d27},
                 {0x10d69, 0x10d6d}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
                 {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x11382, 0x11385},
                 {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x11391}, {0x113b8, 0x113b8},
                 {0x113bb, 0x113bb}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5}, {0x113c7, 0x113c9},
                 {0x113ce, 0x113d0}, {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930},
                 {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943},
                 {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99},
                 {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42},
                 {0x1611e, 0x16129}, {0x1612f, 0x1612f}, {0x16d63, 0x16d63}, {0x16d67, 0x16d6a},
                 {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae},
                 {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef}};
  const auto it = std::upper_bound(std::begin(kRanges), std::end(kRanges), c,
                                   [](char32_t x, const auto& range) { return x < range.first; });
  return it != std::begin(kRanges) && c <= std::prev(it)->last;
}

// Normalizes text chunk by chunk; keeps its buffer.
class NfcComposer {
 public:
  // REQUIRES: no later character (above) in `chunk`.
  void Append(std::string_view chunk, std::string* out) {
    buffer_.clear();
    for (const char32_t c : CodePoints(chunk)) {
      utf8proc_int32_t parts[8];
      const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts,
                                                 std::size(parts), UTF8PROC_DECOMPOSE, nullptr);
      buffer_.insert(buffer_.end(), parts,
                     parts + std::clamp<utf8proc_ssize_t>(count, 0, std::size(parts)));
    }
    // utf8proc orders marks too, but in quadratic time.
    const auto mark_class = [](utf8proc_int32_t c) {
      return utf8proc_get_property(c)->combining_class;
    };
    for (auto it = buffer_.begin(); it != buffer_.end();) {
      const auto end = std::find_if(it, buffer_.end(), [&](auto c) { return mark_class(c) == 0; });
      std::stable_sort(it, end, [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
      it = end == buffer_.end() ? end : std::next(end);
    }
    const auto length = utf8proc_normalize_utf32(
        buffer_.data(), static_cast<utf8proc_ssize_t>(buffer_.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    for (utf8proc_ssize_t i = 0; i < length; ++i)
      AppendUtf8(out, static_cast<char32_t>(buffer_[i]));
  }

 private:
  std::vector<utf8proc_int32_t> buffer_;
};

// Composes chunks from one boundary to the next; what is its own composed form is copied.
void ComposeAll(Rewriter* rewriter) {
  NfcComposer composer;
  std::string composed;
  while (!rewriter->done()) {
    const std::string_view rest = rewriter->rest();
    size_t same = 0, end = 0;  // the chunk is rest[same, end)
    while (same < rest.size()) {
      end = same;
      const char32_t first = DecodeUtf8(rest, &end);
      const size_t second = end;
      while (!CameAfterUnicode9(first) && end < rest.size()) {
        size_t next = end;
        const char32_t c = DecodeUtf8(rest, &next);
        if (IsNfcBoundary(c) || CameAfterUnicode9(c)) break;
        end = next;
      }
      const bool settled = end == second && (IsNfcBoundary(first) || CameAfterUnicode9(first));
      if (!settled) break;
      same = end;
    }
    rewriter->Copy(same);
    if (rewriter->done()) break;
    composed.clear();
    composer.Append(rest.substr(same, end - same), &composed);
    if (composed == rest.substr(same, end - same)) {
      rewriter->Copy(end - same);
    } else {
      rewriter->Put(end - same, composed);
    }
  }
}

// Characters that tokenizers' tables, which are Unicode 9's, do not take apart for compatibility.
bool IsLaterCompatible(char32_t c) {
  static constexpr CharRange kRanges[] = {
      {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xab69, 0xab69},   {0x10781, 0x10785},
      {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x1e030, 0x1e06d}, {0x1f16c, 0x1f16c},
      {0x1ccd6, 0x1ccf9}, {0x1fbf0, 0x1fbf9}};
  return IsInRanges(kRanges, c);
}

// Decomposes chunks, each a character of class 0 and the marks after it, and orders their marks.
class Decomposer {
 public:
  explicit Decomposer(bool compatible) : compatible_(compatible) {}

  void Run(Rewriter* rewriter) {
    std::string decomposed;
    while (!rewriter->done()) {
      const std::string_view rest = rewriter->rest();
      size_t ascii = 0;
      while (ascii < rest.size() && static_cast<unsigned char>(rest[ascii]) < 0x80) ++ascii;
      if (ascii > 0) {
        // The last one may begin a chunk; it is its own decomposition.
        rewriter->Copy(ascii);
        continue;
      }
      parts_.clear();
      size_t end = 0;
      Append(DecodeUtf8(rest, &end));
      while (end < rest.size()) {
        size_t next = end;
        const size_t before = parts_.size();
        Append(DecodeUtf8(rest, &next));
        if (ClassOf(parts_[before]) != 0) {
          end = next;
          continue;
        }
        parts_.resize(before);
        break;
      }
      Order();
      decomposed.clear();
      for (const utf8proc_int32_t c : parts_) AppendUtf8(&decomposed, static_cast<char32_t>(c));
      decomposed == rest.substr(0, end) ? rewriter->Copy(end) : rewriter->Put(end, decomposed);
    }
  }

 private:
  static int ClassOf(utf8proc_int32_t c) {
    if (CameAfterUnicode9(static_cast<char32_t>(c))) return 0;
    return utf8proc_get_property(c)->combining_class;
  }
  void Append(char32_t c) {
    if (CameAfterUnicode9(c) || (compatible_ && IsLaterCompatible(c)))
      return parts_.push_back(static_cast<utf8proc_int32_t>(c));
    utf8proc_int32_t out[32];
    const int options = UTF8PROC_DECOMPOSE | (compatible_ ? UTF8PROC_COMPAT : 0);
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), out, std::size(out),
                                static_cast<utf8proc_option_t>(options), nullptr);
    parts_.insert(parts_.end(), out, out + std::clamp<utf8proc_ssize_t>(count, 0, std::size(out)));
  }
  void Order() {
    for (auto it = parts_.begin(); it != parts_.end();) {
      const auto end = std::find_if(it, parts_.end(), [](auto c) { return ClassOf(c) == 0; });
      std::stable_sort(it, end, [](auto a, auto b) { return ClassOf(a) < ClassOf(b); });
      it = end == parts_.end() ? end : std::next(end);
    }
  }

  const bool compatible_;
  std::vector<utf8proc_int32_t> parts_;
};

// rewrite(c, its bytes) for each character: what stands in its place; nothing: it stays.
template <typename Rewrite>
void ForEachCharacter(Rewriter* rewriter, Rewrite rewrite) {
  while (!rewriter->done()) {
    const std::string_view rest = rewriter->rest();
    size_t end = 0;
    const char32_t c = DecodeUtf8(rest, &end);
    const std::optional<std::string> content = rewrite(c, rest.substr(0, end));
    content ? rewriter->Put(end, *content) : rewriter->Copy(end);
  }
}

// A character is dropped where `drops(c)`.
template <typename Drops>
void DropCharacters(Rewriter* rewriter, Drops drops) {
  ForEachCharacter(rewriter, [&](char32_t c, std::string_view) {
    return drops(c) ? std::optional<std::string>("") : std::nullopt;
  });
}

// BertNormalizer's: controls go, white space becomes spaces.
void CleanText(Rewriter* rewriter) {
  ForEachCharacter(rewriter, [](char32_t c, std::string_view) -> std::optional<std::string> {
    if (c == ' ') return std::nullopt;
    if (IsInRanges(kBertControls, c)) return "";
    return IsWhiteSpace(c) ? std::optional<std::string>(" ") : std::nullopt;
  });
}

void PadIdeographs(Rewriter* rewriter) {
  static constexpr CharRange kIdeographs[] = {
      {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},  {0x20000, 0x2a6df},
      {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
  ForEachCharacter(rewriter, [](char32_t c, std::string_view bytes) -> std::optional<std::string> {
    if (!IsInRanges(kIdeographs, c)) return std::nullopt;
    return " " + std::string(bytes) + " ";
  });
}

void Lowercase(Rewriter* rewriter) {
  ForEachCharacter(rewriter, [](char32_t c, std::string_view bytes) -> std::optional<std::string> {
    if (c < 0x80 && !(c >= 'A' && c <= 'Z')) return std::nullopt;
    return ToLower(bytes);
  });
}

void Strip(bool left, bool right, std::string_view text, Rewriter* rewriter) {
  size_t begin = 0, end = text.size();
  for (size_t i = 0; left && i < text.size(); begin = i) {
    if (!IsWhiteSpace(DecodeUtf8(text, &i))) break;
  }
  for (size_t at = end; right && at > begin;) {
    do --at;
    while (at > begin && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    size_t i = at;
    if (!IsWhiteSpace(DecodeUtf8(text, &i))) break;
    end = at;
  }
  rewriter->Put(begin, "");
  rewriter->Copy(end - begin);
  rewriter->Put(text.size() - end, "");
}

// sentencepiece's map, a grapheme at a time where it is short, else a character at a time, as
// tokenizers does it.
void ApplyMap(const PrecompiledMap& map, Rewriter* rewriter) {
  constexpr size_t kShortGrapheme = 6;  // bytes; shorter ones are looked up whole
  while (!rewriter->done()) {
    const std::string_view rest = rewriter->rest();
    size_t end = 0;
    auto last = static_cast<utf8proc_int32_t>(DecodeUtf8(rest, &end));
    for (utf8proc_int32_t state = 0; end < rest.size();) {
      size_t next = end;
      const auto c = static_cast<utf8proc_int32_t>(DecodeUtf8(rest, &next));
      if (utf8proc_grapheme_break_stateful(last, c, &state)) break;
      last = c;
      end = next;
    }
    const std::string_view grapheme = rest.substr(0, end);
    if (grapheme.size() < kShortGrapheme) {
      if (const auto whole = map.Find(grapheme)) {
        rewriter->Put(grapheme.size(), *whole);
        continue;
      }
    }
    for (size_t i = 0; i < grapheme.size();) {
      const size_t begin = i;
      DecodeUtf8(grapheme, &i);
      const std::string_view character = grapheme.substr(begin, i - begin);
      const auto mapped = map.Find(character);
      mapped ? rewriter->Put(character.size(), *mapped) : rewriter->Copy(character.size());
    }
  }
}

void ReplaceMatches(const Regex& regex, std::string_view text, const std::string& content,
                    Rewriter* rewriter) {
  Regex::Matches matches(regex, text);
  size_t done = 0;
  for (size_t begin, end; matches.Next(&begin, &end); done = end) {
    rewriter->Copy(begin - done);
    rewriter->Put(end - begin, content);
  }
  rewriter->Copy(text.size() - done);
}

void ReplaceAll(const std::string& pattern, const std::string& content, Rewriter* rewriter) {
  while (!rewriter->done()) {
    const size_t found = rewriter->rest().find(pattern);
    if (found == std::string_view::npos) return rewriter->Copy(rewriter->rest().size());
    rewriter->Copy(found);
    rewriter->Put(pattern.size(), content);
  }
}

}  // namespace

bool Overlaps(const ByteRanges& ranges, size_t begin, size_t end) {
  const auto it = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                   [](size_t x, const ByteRange& range) { return x < range.end; });
  return it != ranges.end() && it->begin < end;
}

ByteRanges Slice(const ByteRanges& ranges, size_t begin, size_t end) {
  ByteRanges out;
  auto it = std::upper_bound(ranges.begin(), ranges.end(), begin,
                             [](size_t x, const ByteRange& range) { return x < range.end; });
  for (; it != ranges.end() && it->begin < end; ++it) {
    out.push_back({std::max(it->begin, begin) - begin, std::min(it->end, end) - begin});
  }
  return out;
}

base::Result<Normalizer> Normalizer::Create(std::vector<NormalizerStep> steps) {
  Normalizer made;
  for (NormalizerStep& spec : steps) {
    Step step{.spec = std::move(spec)};
    if (step.spec.regex) {
      FB_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(step.spec.pattern));
      step.regex = std::make_shared<const Regex>(std::move(regex));
    }
    if (step.spec.kind == NormalizerStep::Kind::kPrecompiled) {
      FB_ASSIGN_OR_RETURN(PrecompiledMap map, PrecompiledMap::Parse(step.spec.content));
      step.map = std::make_shared<const PrecompiledMap>(std::move(map));
    }
    made.steps_.push_back(std::move(step));
  }
  return made;
}

Normalizer::Normalizer(std::vector<NormalizerStep> steps) {
  base::Result<Normalizer> made = Create(std::move(steps));
  FB_CHECK(made.ok(), "{}", made.status().ToString());
  *this = std::move(made).value();
}

std::string Normalizer::Apply(std::string_view text, ByteRanges* untrusted) const {
  std::string current(text);
  const auto run = [&](auto&& rewrite) {
    if (current.empty()) return;
    Rewriter rewriter(current, *untrusted);
    rewrite(&rewriter);
    std::string text_after = rewriter.TakeText();
    *untrusted = rewriter.TakeRanges();
    current = std::move(text_after);
  };
  const auto decompose = [&](bool compatible) {
    run([&](Rewriter* rewriter) { Decomposer(compatible).Run(rewriter); });
  };
  using Kind = NormalizerStep::Kind;
  for (const Step& entry : steps_) {
    const NormalizerStep& step = entry.spec;
    switch (step.kind) {
      case Kind::kNfc: run(ComposeAll); break;
      case Kind::kNfd: decompose(false); break;
      case Kind::kNfkd: decompose(true); break;
      case Kind::kNfkc:
        decompose(true);
        run(ComposeAll);
        break;
      case Kind::kReplace:
        run([&](Rewriter* rewriter) {
          entry.regex ? ReplaceMatches(*entry.regex, current, step.content, rewriter)
                      : ReplaceAll(step.pattern, step.content, rewriter);
        });
        break;
      case Kind::kPrepend:
        run([&](Rewriter* rewriter) {
          rewriter->Put(0, step.content);
          rewriter->Copy(current.size());
        });
        break;
      case Kind::kLowercase: run(Lowercase); break;
      case Kind::kDropMarks:
        run([](Rewriter* rewriter) {
          DropCharacters(rewriter, [](char32_t c) { return IsInRanges(kCombiningMarks, c); });
        });
        break;
      case Kind::kDropNonspacing:
        run([](Rewriter* rewriter) {
          DropCharacters(rewriter, [](char32_t c) { return IsInRanges(kNonspacingMarks, c); });
        });
        break;
      case Kind::kCleanText: run(CleanText); break;
      case Kind::kPadIdeographs: run(PadIdeographs); break;
      case Kind::kStrip:
        run([&](Rewriter* rewriter) { Strip(step.left, step.right, current, rewriter); });
        break;
      case Kind::kPrecompiled:
        run([&](Rewriter* rewriter) { ApplyMap(*entry.map, rewriter); });
        break;
    }
  }
  return current;
}

std::string ToNfc(std::string_view text) {
  return Normalizer({NormalizerStep{NormalizerStep::Kind::kNfc, "", ""}}).Apply(text);
}

}  // namespace forebay::text
