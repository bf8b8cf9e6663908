#include "text/jinja/text_ops.h"

#include <fmt/core.h>

#include <algorithm>

#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/unicode/unicode.h"

namespace forebay::text::jinja {
namespace {

// The start of the character that ends at byte `end`.
size_t CharBefore(std::string_view text, size_t end) {
  size_t i = end - 1;
  while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
  return i;
}

std::vector<Value> Pieces(Runtime& rt, const Value& s,
                          const std::vector<std::pair<size_t, size_t>>& spans) {
  rt.Charge(spans.size());
  std::vector<Value> pieces;
  pieces.reserve(spans.size());
  for (const auto& [begin, end] : spans) pieces.push_back(Substring(rt.arena, s, begin, end));
  return pieces;
}

std::vector<std::pair<size_t, size_t>> Words(std::string_view text, int64_t most) {
  std::vector<std::pair<size_t, size_t>> spans;
  size_t begin = 0, i = 0;
  bool in_word = false;
  while (i < text.size()) {
    const size_t at = i;
    const bool space = IsPythonSpace(DecodeUtf8(text, &i));
    if (space && in_word) {
      spans.push_back({begin, at});
      in_word = false;
    } else if (!space && !in_word) {
      begin = at;
      in_word = true;
      // the rest is the last piece
      if (most >= 0 && static_cast<int64_t>(spans.size()) == most) break;
    }
  }
  if (in_word) {
    spans.push_back({begin, text.size()});
  }
  return spans;
}

std::vector<std::pair<size_t, size_t>> WordsFromRight(std::string_view text, int64_t most) {
  std::vector<std::pair<size_t, size_t>> spans = Words(text, -1);
  if (most < 0 || static_cast<int64_t>(spans.size()) <= most + 1) return spans;
  const size_t joined = spans.size() - static_cast<size_t>(most);
  std::vector<std::pair<size_t, size_t>> out = {{0, spans[joined - 1].second}};
  // The first piece keeps its inner and leading white space; only its end is cut.
  out.insert(out.end(), spans.begin() + static_cast<ptrdiff_t>(joined), spans.end());
  return out;
}

const Value& RequireSeparator(const Value& separator) {
  if (!separator.IsString())
    FailType(fmt::format("must be str or None, not {}", TypeName(separator)));
  if (separator.text().empty()) Fail(kTemplateRuntime, "empty separator");
  return separator;
}

std::vector<std::pair<size_t, size_t>> Between(const std::vector<size_t>& cuts, size_t width,
                                               size_t size) {
  std::vector<std::pair<size_t, size_t>> spans;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    spans.push_back({begin, cut});
    begin = cut + width;
  }
  spans.push_back({begin, size});
  return spans;
}

}  // namespace

bool IsPythonSpace(char32_t c) { return IsWhiteSpace(c) || (c >= 0x1C && c <= 0x1F); }

Value Strip(Runtime& rt, const Value& s, const Value* chars, StripSide side) {
  std::u32string set;
  if (chars != nullptr && !chars->Is(Kind::kNone)) {
    if (!chars->IsString()) FailType("strip arg must be None or str");
    for (const char32_t c : CodePoints(chars->text())) set.push_back(c);
    std::sort(set.begin(), set.end());
  } else {
    chars = nullptr;
  }
  const auto stripped = [&](char32_t c) {
    return chars == nullptr ? IsPythonSpace(c) : std::binary_search(set.begin(), set.end(), c);
  };
  const std::string_view text = s.text();
  size_t begin = 0, end = text.size();
  while (side != StripSide::kRight && begin < end) {
    size_t next = begin;
    if (!stripped(DecodeUtf8(text, &next))) break;
    begin = next;
  }
  while (side != StripSide::kLeft && end > begin) {
    size_t at = CharBefore(text, end), next = at;
    if (!stripped(DecodeUtf8(text, &next))) break;
    end = at;
  }
  rt.ChargeBytes(text.size() - (end - begin));
  return Substring(rt.arena, s, begin, end);
}

std::vector<size_t> FindAll(Runtime& rt, std::string_view text, std::string_view needle,
                            int64_t most) {
  rt.ChargeBytes(text.size());
  std::vector<size_t> found;
  for (size_t at = 0; most < 0 || static_cast<int64_t>(found.size()) < most;) {
    at = FindBytes(text, needle, at);
    if (at == text.npos) break;
    rt.Charge(1);
    found.push_back(at);
    at += needle.size();
  }
  return found;
}

Value Replace(Runtime& rt, const Value& s, const Value& from, const Value& to, int64_t count) {
  const std::string_view text = s.text(), needle = from.text();
  std::vector<size_t> cuts;
  if (needle.empty()) {
    // Before every character and at the end.
    cuts = [&] {
      rt.Charge(text.size());
      const std::vector<uint32_t> offsets = CharOffsets(text);
      return std::vector<size_t>(offsets.begin(), offsets.end());
    }();
    if (count >= 0 && cuts.size() > static_cast<size_t>(count))
      cuts.resize(static_cast<size_t>(count));
  } else {
    cuts = FindAll(rt, text, needle, count);
  }
  if (cuts.empty()) return s;
  TextBuilder out(rt);
  size_t copied = 0;
  for (const size_t cut : cuts) {
    out.Append(s, copied, cut);
    out.Append(to);
    copied = cut + needle.size();
    rt.ChargeBytes(to.text().size());
  }
  out.Append(s, copied, text.size());
  return out.Finish(rt);
}

std::vector<Value> Split(Runtime& rt, const Value& s, const Value* separator, int64_t most) {
  const std::string_view text = s.text();
  if (separator == nullptr || separator->Is(Kind::kNone)) {
    rt.ChargeBytes(8 * text.size());
    return Pieces(rt, s, Words(text, most));
  }
  const std::string_view needle = RequireSeparator(*separator).text();
  return Pieces(rt, s, Between(FindAll(rt, text, needle, most), needle.size(), text.size()));
}

std::vector<Value> SplitFromRight(Runtime& rt, const Value& s, const Value* separator,
                                  int64_t most) {
  const std::string_view text = s.text();
  if (separator == nullptr || separator->Is(Kind::kNone)) {
    rt.ChargeBytes(8 * text.size());
    return Pieces(rt, s, WordsFromRight(text, most));
  }
  const std::string_view needle = RequireSeparator(*separator).text();
  rt.ChargeBytes(text.size() + 8 * needle.size());
  std::vector<size_t> cuts;
  size_t end = text.size();
  while (end >= needle.size() && (most < 0 || static_cast<int64_t>(cuts.size()) < most)) {
    // rfind compares at most needle.size() bytes at each place.
    const size_t at = text.rfind(needle, end - needle.size());
    if (at == text.npos) break;
    rt.Charge(1 + (end - at) * std::min<size_t>(needle.size(), 32) / 256);
    cuts.push_back(at);
    end = at;
  }
  std::reverse(cuts.begin(), cuts.end());
  return Pieces(rt, s, Between(cuts, needle.size(), text.size()));
}

std::vector<Value> SplitLines(Runtime& rt, const Value& s, bool keep_ends) {
  const std::string_view text = s.text();
  rt.ChargeBytes(8 * text.size());
  std::vector<std::pair<size_t, size_t>> spans;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const char32_t c = DecodeUtf8(text, &i);
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    spans.push_back({begin, keep_ends ? i : at});
    begin = i;
  }
  if (begin < text.size()) spans.push_back({begin, text.size()});
  return Pieces(rt, s, spans);
}

Value Join(Runtime& rt, const Value& separator, std::span<const Value> items, bool print) {
  TextBuilder out(rt);
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].IsString() && !print) {
      FailType(
          fmt::format("sequence item {}: expected str instance, {} found", i, TypeName(items[i])));
    }
    if (i > 0) out.Append(separator);
    Print(rt, items[i], &out);
    rt.Charge(1);
  }
  return out.Finish(rt);
}

Value Center(Runtime& rt, const Value& s, int64_t width, const Value& fill) {
  const auto size = static_cast<int64_t>(CountChars(s.text()));
  if (width <= size) return s;
  if (width - size > static_cast<int64_t>(rt.limits.output_bytes))
    Fail(kTemplateLimit, "a text is padded too widely");
  const int64_t padding = width - size, left = padding / 2 + (padding & width & 1);
  rt.ChargeBytes(static_cast<size_t>(32 * padding));
  TextBuilder out(rt);
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(s);
  for (int64_t i = left; i < padding; ++i) out.Append(fill);
  return out.Finish(rt);
}

Value Mapped(Runtime& rt, const Value& s, const std::string& text) {
  rt.ChargeBytes(4 * text.size());
  return rt.NewString(text, OriginOf(s));
}

}  // namespace forebay::text::jinja
