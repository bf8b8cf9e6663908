#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "text/unicode.h"

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

std::string Normalizer::Apply(std::string_view text, ByteRanges* untrusted) const {
  std::string current(text);
  for (const NormalizerStep& step : steps_) {
    if (current.empty()) break;
    Rewriter rewriter(current, *untrusted);
    switch (step.kind) {
      case NormalizerStep::Kind::kNfc: ComposeAll(&rewriter); break;
      case NormalizerStep::Kind::kReplace: ReplaceAll(step.pattern, step.content, &rewriter); break;
      case NormalizerStep::Kind::kPrepend:
        rewriter.Put(0, step.content);
        rewriter.Copy(current.size());
        break;
    }
    std::string text_after = rewriter.TakeText();
    *untrusted = rewriter.TakeRanges();
    current = std::move(text_after);
  }
  return current;
}

std::string ToNfc(std::string_view text) {
  return Normalizer({NormalizerStep{NormalizerStep::Kind::kNfc, "", ""}}).Apply(text);
}

}  // namespace forebay::text
