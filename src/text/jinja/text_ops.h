// Operations on strings that filters and methods share. All keep the origin of what they copy.
#pragma once

#include <string>
#include <vector>

#include "text/jinja/text_builder.h"

namespace forebay::text::jinja {

bool IsPythonSpace(char32_t c);

enum class StripSide : uint8_t { kBoth, kLeft, kRight };
// Takes off the characters in `chars`, or white space where it is null.
Value Strip(Runtime& rt, const Value& s, const Value* chars, StripSide side);
// Replaces at most `count` occurrences, all if it is negative.
Value Replace(Runtime& rt, const Value& s, const Value& from, const Value& to, int64_t count);
// Around `separator`, or runs of white space where it is null; at most `most` cuts if that is not
// negative.
std::vector<Value> Split(Runtime& rt, const Value& s, const Value* separator, int64_t most);
std::vector<Value> SplitFromRight(Runtime& rt, const Value& s, const Value* separator,
                                  int64_t most);
std::vector<Value> SplitLines(Runtime& rt, const Value& s, bool keep_ends);
// Joins with `separator`; items that are no text fail, or are printed if `print` is set.
Value Join(Runtime& rt, const Value& separator, std::span<const Value> items, bool print);
struct WrapStyle {
  int64_t width = 0;             // in characters, at least 1
  bool break_long_words = true;  // one longer than a line goes on in the next
  bool break_on_hyphens = true;  // words may end behind a hyphen inside them
};
// The lines that Python's textwrap.wrap makes of one line; none of a blank one.
std::vector<Value> Wrap(Runtime& rt, const Value& line, const WrapStyle& style);
Value Center(Runtime& rt, const Value& s, int64_t width, const Value& fill);
// A text mapped as a whole, such as upper case: the request's if any of `s` is.
Value Mapped(Runtime& rt, const Value& s, const std::string& text);
// The offsets of occurrences that do not overlap.
std::vector<size_t> FindAll(Runtime& rt, std::string_view text, std::string_view needle,
                            int64_t most);

}  // namespace forebay::text::jinja
