// Strings that remember, character by character, whether the template or the request wrote them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"

namespace forebay::text::jinja {

class TextBuilder {
 public:
  explicit TextBuilder(const Runtime& rt) : limit_(rt.limits.output_bytes) {}

  // A mixed origin counts as the request's.
  void Append(std::string_view text, Origin origin = Origin::kTemplate);
  // REQUIRES: `string` is one; [begin, end) are bytes of it.
  void Append(const Value& string) { Append(string, 0, string.text().size()); }
  void Append(const Value& string, size_t begin, size_t end);
  // Appends `replacement` as written by whoever wrote bytes [begin, end) of `string`.
  void AppendFor(const Value& string, size_t begin, size_t end, std::string_view replacement);

  const std::string& text() const { return text_; }
  // The byte offsets at which the origin changes, rising; the text starts as the template's.
  const std::vector<uint32_t>& flips() const { return flips_; }
  Value Finish(Runtime& rt) const;
  std::string TakeText() { return std::move(text_); }

 private:
  std::string text_;
  std::vector<uint32_t> flips_;
  size_t limit_;
};

// Who wrote bytes [begin, end): the request, if it wrote any of them.
Origin OriginOf(const Value& string, size_t begin, size_t end);
inline Origin OriginOf(const Value& string) { return OriginOf(string, 0, string.text().size()); }
// Bytes [begin, end) of a string, sharing its characters.
Value Substring(Arena& arena, const Value& string, size_t begin, size_t end);
Value Concatenate(Runtime& rt, const Value& a, const Value& b);

// UTF-8 by code points. REQUIRES: valid UTF-8.
bool IsAscii(std::string_view text);
size_t CountChars(std::string_view text);
inline size_t CharLength(char lead) {
  const auto c = static_cast<unsigned char>(lead);
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}
// The byte offset of every character, and of the end.
std::vector<uint32_t> CharOffsets(std::string_view text);

}  // namespace forebay::text::jinja
