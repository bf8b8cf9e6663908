#include "text/jinja/text_builder.h"

#include <algorithm>

namespace forebay::text::jinja {
namespace {

// How many flips lie at or before byte `at`: odd means that the request wrote it.
size_t FlipsUpTo(std::span<const uint32_t> flips, size_t at) {
  return static_cast<size_t>(std::upper_bound(flips.begin(), flips.end(), at) - flips.begin());
}

}  // namespace

void TextBuilder::Append(std::string_view text, Origin origin) {
  if (text.empty()) return;
  if (text.size() > limit_ - text_.size()) {
    Fail(kTemplateLimit,
         "the rendered text is too long: more than " + std::to_string(limit_) + " bytes");
  }
  const bool request = origin != Origin::kTemplate;
  if (request != (flips_.size() % 2 == 1)) flips_.push_back(static_cast<uint32_t>(text_.size()));
  text_.append(text);
}

void TextBuilder::Append(const Value& string, size_t begin, size_t end) {
  const std::string_view text = string.text();
  if (string.origin() != Origin::kMixed)
    return Append(text.substr(begin, end - begin), string.origin());
  const std::span<const uint32_t> flips = string.mixed()->flips;
  for (size_t i = FlipsUpTo(flips, begin); begin < end; ++i) {
    const size_t stop = i < flips.size() ? std::min<size_t>(flips[i], end) : end;
    Append(text.substr(begin, stop - begin), i % 2 == 1 ? Origin::kRequest : Origin::kTemplate);
    begin = stop;
  }
}

void TextBuilder::AppendFor(const Value& string, size_t begin, size_t end,
                            std::string_view replacement) {
  Append(replacement, OriginOf(string, begin, end));
}

Value TextBuilder::Finish(Runtime& rt) const {
  rt.ChargeBytes(text_.size());
  const std::string_view text = rt.arena.Copy(text_);
  if (flips_.empty()) return Value::String(text, Origin::kTemplate);
  if (flips_.size() == 1 && flips_[0] == 0) return Value::String(text, Origin::kRequest);
  const auto flips = rt.arena.CopyArray(std::span<const uint32_t>(flips_));
  return Value::String(rt.arena.New(MixedString{text.data(), flips}),
                       static_cast<uint32_t>(text.size()));
}

Origin OriginOf(const Value& string, size_t begin, size_t end) {
  if (string.origin() != Origin::kMixed) return string.origin();
  const std::span<const uint32_t> flips = string.mixed()->flips;
  const size_t first = FlipsUpTo(flips, begin);
  const bool flips_inside = first < flips.size() && flips[first] < end;
  return first % 2 == 1 || flips_inside ? Origin::kRequest : Origin::kTemplate;
}

Value Substring(Arena& arena, const Value& string, size_t begin, size_t end) {
  const std::string_view text = string.text().substr(begin, end - begin);
  if (string.origin() != Origin::kMixed) return Value::String(text, string.origin());
  const std::span<const uint32_t> flips = string.mixed()->flips;
  const size_t first = FlipsUpTo(flips, begin);
  const size_t last =
      static_cast<size_t>(std::lower_bound(flips.begin(), flips.end(), end) - flips.begin());
  const bool request = first % 2 == 1;
  if (first >= last) return Value::String(text, request ? Origin::kRequest : Origin::kTemplate);
  const std::span<uint32_t> own = arena.NewArray<uint32_t>(last - first + (request ? 1 : 0));
  size_t n = 0;
  if (request) own[n++] = 0;
  for (size_t i = first; i < last; ++i) own[n++] = flips[i] - static_cast<uint32_t>(begin);
  return Value::String(arena.New(MixedString{text.data(), own}),
                       static_cast<uint32_t>(text.size()));
}

Value Concatenate(Runtime& rt, const Value& a, const Value& b) {
  const std::string_view left = a.text(), right = b.text();
  if (left.empty()) return b;
  if (right.empty()) return a;
  if (a.origin() != b.origin() || a.origin() == Origin::kMixed ||
      left.size() + right.size() > rt.limits.output_bytes) {
    TextBuilder out(rt);
    out.Append(a);
    out.Append(b);
    return out.Finish(rt);
  }
  const size_t size = left.size() + right.size();
  rt.ChargeBytes(size);
  char* joined = static_cast<char*>(rt.arena.Allocate(size));
  std::memcpy(joined, left.data(), left.size());
  std::memcpy(joined + left.size(), right.data(), right.size());
  return Value::String({joined, size}, a.origin());
}

bool IsAscii(std::string_view text) {
  unsigned char all = 0;
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

size_t CountChars(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::vector<uint32_t> CharOffsets(std::string_view text) {
  std::vector<uint32_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size(); i += CharLength(text[i]))
    offsets.push_back(static_cast<uint32_t>(i));
  offsets.push_back(static_cast<uint32_t>(text.size()));
  return offsets;
}

}  // namespace forebay::text::jinja
