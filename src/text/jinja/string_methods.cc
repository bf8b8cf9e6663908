// The methods of Python's str that templates use.
#include <fmt/core.h>

#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_ops.h"
#include "text/unicode/unicode.h"

namespace forebay::text::jinja {
namespace {

const Value& RequireString(const Value& v, std::string_view method) {
  if (v.IsUndefined()) FailUndefined(v);
  if (!v.IsString()) FailType(fmt::format("{}: expected str, not {}", method, TypeName(v)));
  return v;
}

Value NewList(Runtime& rt, const std::vector<Value>& items) {
  return rt.NewArray(Kind::kList, items);
}

template <StripSide side>
Value StripMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("strip", args, {nullptr});
  return Strip(rt, self, p[0], side);
}

template <auto function>
Value SplitMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("split", args, {"sep", "maxsplit"});
  return NewList(rt, function(rt, self, p[0], p.Integer(1, -1)));
}

template <std::string (*map)(std::string_view)>
Value CaseMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("a case method", args, {});
  return Mapped(rt, self, map(self.text()));
}

std::string SwapCase(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const Category category = CategoryOf(DecodeUtf8(text, &i));
    const std::string_view c = text.substr(at, i - at);
    out += category == Category::kLu || category == Category::kLt ? ToLower(c) : ToUpper(c);
  }
  return out;
}

Value SplitLinesMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("splitlines", args, {"keepends"});
  return NewList(rt, SplitLines(rt, self, p.Truthy(0, false)));
}

// The part of `self` that the arguments start and end of find, count, startswith, ... select, in
// bytes.
struct Range {
  size_t begin, end;
  bool empty;  // start lies behind end: nothing is found, not even ""
};
Range SelectRange(Runtime& rt, const Value& self, const Parameters& p, size_t first) {
  const std::string_view text = self.text();
  if (p[first] == nullptr && p[first + 1] == nullptr) return {0, text.size(), false};
  rt.ChargeBytes(8 * text.size());
  const std::vector<uint32_t> offsets = CharOffsets(text);
  const auto size = static_cast<int64_t>(offsets.size()) - 1;
  const auto bound = [&](size_t i, int64_t fallback) {
    const int64_t v = p[i] == nullptr || p[i]->Is(Kind::kNone) ? fallback : p.Integer(i, fallback);
    return v < 0 ? std::max<int64_t>(v + size, 0) : v;
  };
  const int64_t start = bound(first, 0), stop = std::min(bound(first + 1, size), size);
  if (start > stop) return {0, 0, true};
  return {offsets[static_cast<size_t>(start)], offsets[static_cast<size_t>(stop)], false};
}

template <bool starts>
Value EndsMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p(starts ? "startswith" : "endswith", args, {nullptr, nullptr, nullptr});
  const Range range = SelectRange(rt, self, p, 1);
  const std::string_view text = self.text().substr(range.begin, range.end - range.begin);
  const auto matches = [&](const Value& v) {
    const std::string_view affix = RequireString(v, starts ? "startswith" : "endswith").text();
    rt.ChargeBytes(affix.size());
    return !range.empty && (starts ? text.starts_with(affix) : text.ends_with(affix));
  };
  const Value& affix = p.Required(0);
  if (!affix.Is(Kind::kTuple)) return Value::Bool(matches(affix));
  for (const Value& v : affix.items()) {
    if (matches(v)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

// The character index of the first (or last) occurrence, or -1.
int64_t FindIndex(Runtime& rt, const Value& self, const Arguments& args, bool last) {
  const Parameters p("find", args, {nullptr, nullptr, nullptr});
  const std::string_view needle = RequireString(p.Required(0), "find").text();
  const Range range = SelectRange(rt, self, p, 1);
  const std::string_view text = self.text().substr(0, range.end);
  rt.ChargeBytes(2 * text.size());
  if (range.empty) return -1;
  size_t at = FindBytes(text, needle, range.begin);
  if (at == text.npos) return -1;
  if (last) {
    if (needle.empty()) at = text.size();
    for (size_t next = at; !needle.empty() && next != text.npos;
         next = FindBytes(text, needle, at + 1)) {
      rt.Charge(1);
      at = next;
    }
  }
  return static_cast<int64_t>(CountChars(text.substr(0, at)));
}

template <bool last>
Value FindMethod_(Runtime& rt, const Value& self, const Arguments& args) {
  return Value::Int(FindIndex(rt, self, args, last));
}

template <bool last>
Value IndexMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const int64_t index = FindIndex(rt, self, args, last);
  if (index < 0) Fail(kTemplateRuntime, "substring not found");
  return Value::Int(index);
}

Value CountMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("count", args, {nullptr, nullptr, nullptr});
  const std::string_view needle = RequireString(p.Required(0), "count").text();
  const Range range = SelectRange(rt, self, p, 1);
  const std::string_view text = self.text().substr(range.begin, range.end - range.begin);
  if (range.empty) return Value::Int(0);
  if (needle.empty()) return Value::Int(static_cast<int64_t>(CountChars(text)) + 1);
  return Value::Int(static_cast<int64_t>(FindAll(rt, text, needle, -1).size()));
}

Value ReplaceMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("replace", args, {nullptr, nullptr, "count"});
  return Replace(rt, self, RequireString(p.Required(0), "replace"),
                 RequireString(p.Required(1), "replace"), p.Integer(2, -1));
}

Value JoinMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("join", args, {nullptr});
  return Join(rt, self, Iterate(rt, p.Required(0)), false);
}

Value FormatMethod(Runtime& rt, const Value& self, const Arguments& args) {
  return BraceFormat(rt, self, args);
}

template <bool prefix>
Value RemoveMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p(prefix ? "removeprefix" : "removesuffix", args, {nullptr});
  const std::string_view text = self.text(),
                         affix = RequireString(p.Required(0), "removeprefix").text();
  if (affix.empty() || !(prefix ? text.starts_with(affix) : text.ends_with(affix))) return self;
  return prefix ? Substring(rt.arena, self, affix.size(), text.size())
                : Substring(rt.arena, self, 0, text.size() - affix.size());
}

template <bool last>
Value PartitionMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("partition", args, {nullptr});
  const Value& separator = RequireString(p.Required(0), "partition");
  std::vector<Value> pieces =
      last ? SplitFromRight(rt, self, &separator, 1) : Split(rt, self, &separator, 1);
  const Value nothing = Value::String("");
  if (pieces.size() == 2) {
    pieces.insert(pieces.begin() + 1, separator);
  } else if (last) {
    pieces = {nothing, nothing, self};
  } else {
    pieces = {self, nothing, nothing};
  }
  return rt.NewArray(Kind::kTuple, pieces);
}

const Value& FillOf(const Parameters& p, const Value& space) {
  if (p[1] == nullptr) return space;
  if (!p[1]->IsString() || CountChars(p[1]->text()) != 1)
    FailType("The fill character must be exactly one character long");
  return *p[1];
}

Value CenterMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("center", args, {nullptr, nullptr});
  p.Required(0);
  return Center(rt, self, p.Integer(0, 0), FillOf(p, Value::String(" ")));
}

template <bool left>
Value JustifyMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("ljust", args, {nullptr, nullptr});
  p.Required(0);
  const Value space = Value::String(" ");
  const int64_t missing = p.Integer(0, 0) - static_cast<int64_t>(CountChars(self.text()));
  if (missing <= 0) return self;
  const Value padding = Binary(rt, BinaryOp::kMul, FillOf(p, space), Value::Int(missing));
  return left ? Concatenate(rt, self, padding) : Concatenate(rt, padding, self);
}

Value ZeroFillMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("zfill", args, {nullptr});
  p.Required(0);
  const int64_t missing = p.Integer(0, 0) - static_cast<int64_t>(CountChars(self.text()));
  if (missing <= 0) return self;
  const Value zeros = Binary(rt, BinaryOp::kMul, Value::String("0"), Value::Int(missing));
  const size_t sign = self.text().starts_with('-') || self.text().starts_with('+');
  return Concatenate(rt, Concatenate(rt, Substring(rt.arena, self, 0, sign), zeros),
                     Substring(rt.arena, self, sign, self.text().size()));
}

// True for text that is not empty and has only characters for which `holds`.
template <bool (*holds)(char32_t)>
Value AllMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("a character test", args, {});
  rt.ChargeBytes(8 * self.text().size());
  for (const char32_t c : CodePoints(self.text())) {
    if (!holds(c)) return Value::Bool(false);
  }
  return Value::Bool(!self.text().empty());
}
bool IsAlpha(char32_t c) { return IsIn(kLetter, c); }
bool IsDecimal(char32_t c) { return CategoryOf(c) == Category::kNd; }
// Superscripts count as digits, other numbers do not.
bool IsDigitChar(char32_t c) {
  return IsDecimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468);
}
bool IsNumeric(char32_t c) { return IsIn(kNumber, c); }
bool IsAlnum(char32_t c) { return IsAlpha(c) || IsNumeric(c); }
bool IsPrintableChar(char32_t c) { return c == ' ' || !IsIn(kOther | kSeparator, c); }

Value IsAsciiMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("isascii", args, {});
  return Value::Bool(IsAscii(self.text()));
}

constexpr Builtin kStringMethods[] = {
    {"capitalize", CaseMethod<Capitalize>},
    {"center", CenterMethod},
    {"count", CountMethod},
    {"endswith", EndsMethod<false>},
    {"find", FindMethod_<false>},
    {"format", FormatMethod},
    {"index", IndexMethod<false>},
    {"isalnum", AllMethod<IsAlnum>},
    {"isalpha", AllMethod<IsAlpha>},
    {"isascii", IsAsciiMethod},
    {"isdecimal", AllMethod<IsDecimal>},
    {"isdigit", AllMethod<IsDigitChar>},
    {"islower", IsCaseMethod<false>},
    {"isnumeric", AllMethod<IsNumeric>},
    {"isprintable", AllMethod<IsPrintableChar>},
    {"isspace", AllMethod<IsPythonSpace>},
    {"isupper", IsCaseMethod<true>},
    {"join", JoinMethod},
    {"ljust", JustifyMethod<true>},
    {"lower", CaseMethod<ToLower>},
    {"lstrip", StripMethod<StripSide::kLeft>},
    {"partition", PartitionMethod<false>},
    {"removeprefix", RemoveMethod<true>},
    {"removesuffix", RemoveMethod<false>},
    {"replace", ReplaceMethod},
    {"rfind", FindMethod_<true>},
    {"rindex", IndexMethod<true>},
    {"rjust", JustifyMethod<false>},
    {"rpartition", PartitionMethod<true>},
    {"rsplit", SplitMethod<SplitFromRight>},
    {"rstrip", StripMethod<StripSide::kRight>},
    {"split", SplitMethod<Split>},
    {"splitlines", SplitLinesMethod},
    {"startswith", EndsMethod<true>},
    {"strip", StripMethod<StripSide::kBoth>},
    {"swapcase", CaseMethod<SwapCase>},
    {"title", CaseMethod<ToTitle>},
    {"upper", CaseMethod<ToUpper>},
    {"zfill", ZeroFillMethod},
};

}  // namespace

const Builtin* FindStringMethod(std::string_view name) { return FindIn(kStringMethods, name); }

}  // namespace forebay::text::jinja
