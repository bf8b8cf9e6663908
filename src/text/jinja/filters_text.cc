// Filters that make text and numbers.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text_ops.h"
#include "text/unicode/unicode.h"

namespace forebay::text::jinja {
namespace {

template <std::string (*map)(std::string_view)>
Value CaseFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("a case filter", args, {});
  const Value text = ToString(rt, self);
  return Mapped(rt, text, map(text.text()));
}

// Unlike str.title: words begin after white space and any of - ( { [ <.
std::string TitleWords(std::string_view text) {
  std::string out;
  size_t begin = 0;
  bool in_word = false;
  const auto finish = [&](size_t end) {
    if (!in_word) return;
    size_t i = begin;
    DecodeUtf8(text, &i);
    out += ToUpper(text.substr(begin, i - begin)) + ToLower(text.substr(i, end - i));
  };
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const char32_t c = DecodeUtf8(text, &i);
    const bool splits =
        IsPythonSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    if (splits) {
      finish(at);
      out.append(text.substr(at, i - at));
      in_word = false;
    } else if (!in_word) {
      begin = at;
      in_word = true;
    }
  }
  finish(text.size());
  return out;
}

Value TrimFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("trim", args, {"chars"});
  return Strip(rt, ToString(rt, self), p[0], StripSide::kBoth);
}

Value ReplaceFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("replace", args, {"old", "new", "count"});
  const int64_t count = p[2] != nullptr && !p[2]->Is(Kind::kNone) ? p.Integer(2, -1) : -1;
  return Replace(rt, ToString(rt, self), ToString(rt, p.Required(0)), ToString(rt, p.Required(1)),
                 count);
}

Value StringFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("string", args, {});
  return ToString(rt, self);
}

Value EscapeFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("escape", args, {});
  const Value string = ToString(rt, self);
  const std::string_view text = string.text();
  rt.ChargeBytes(4 * text.size());
  TextBuilder out(rt);
  size_t copied = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string_view entity;
    switch (text[i]) {
      case '&': entity = "&amp;"; break;
      case '<': entity = "&lt;"; break;
      case '>': entity = "&gt;"; break;
      case '"': entity = "&#34;"; break;
      case '\'': entity = "&#39;"; break;
      default: continue;
    }
    out.Append(string, copied, i);
    out.AppendFor(string, i, i + 1, entity);
    copied = i + 1;
  }
  out.Append(string, copied, text.size());
  return out.Finish(rt);
}

// json.dumps with transformers' defaults: characters kept, no HTML escapes.
Value ToJsonFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = p.Truthy(0, false);
  style.sort_keys = p.Truthy(3, false);
  if (p[1] != nullptr && !p[1]->Is(Kind::kNone)) {
    style.indented = true;
    style.item_separator = ",";
    if (p[1]->IsString())
      style.indent = p[1]->text();
    else
      style.indent.assign(static_cast<size_t>(std::clamp<int64_t>(p.Integer(1, 0), 0, 1000)), ' ');
  }
  if (p[2] != nullptr && !p[2]->Is(Kind::kNone)) {
    const std::span<const Value> pair = Iterate(rt, *p[2]);
    if (pair.size() != 2 || !pair[0].IsString() || !pair[1].IsString())
      FailType("separators must be two strings");
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  TextBuilder out(rt);
  PrintJson(rt, self, style, &out);
  return out.Finish(rt);
}

Value IndentFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("indent", args, {"width", "first", "blank"});
  if (self.IsUndefined()) FailUndefined(self);
  if (!self.IsString()) FailType(fmt::format("indent: expected str, not {}", TypeName(self)));
  Value indent = Value::String("    ");
  if (p[0] != nullptr && p[0]->IsString())
    indent = *p[0];
  else if (p[0] != nullptr)
    indent = Binary(rt, BinaryOp::kMul, Value::String(" "), Value::Int(p.Integer(0, 4)));
  const bool blank = p.Truthy(2, false);
  // As Jinja does it, a newline is added and the text cut into lines.
  const std::vector<Value> lines =
      SplitLines(rt, Concatenate(rt, self, Value::String("\n")), false);
  TextBuilder out(rt);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n");
    if (i == 0 ? p.Truthy(1, false) : blank || !lines[i].text().empty()) out.Append(indent);
    out.Append(lines[i]);
  }
  return out.Finish(rt);
}

Value CenterFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("center", args, {"width"});
  return Center(rt, ToString(rt, self), p.Integer(0, 80), Value::String(" "));
}

Value FormatFilter(Runtime& rt, const Value& self, const Arguments& args) {
  if (!args.named.empty() && !args.positional.empty()) {
    FailType("format takes positional or keyword arguments, not both");
  }
  Value values = Value::Array(Kind::kTuple, args.positional);
  if (!args.named.empty()) {
    const std::span<DictEntry> entries = rt.arena.NewArray<DictEntry>(args.named.size());
    std::copy(args.named.begin(), args.named.end(), entries.begin());
    values = MakeDict(rt.arena, entries);
  }
  return PercentFormat(rt, ToString(rt, self), values);
}

Value WordCountFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("wordcount", args, {});
  const Value text = ToString(rt, self);
  rt.ChargeBytes(8 * text.text().size());
  int64_t count = 0;
  bool in_word = false;
  for (const char32_t c : CodePoints(text.text())) {
    const bool is_word = c == '_' || IsIn(kLetter | kNumber, c);
    count += is_word && !in_word;
    in_word = is_word;
  }
  return Value::Int(count);
}

Value TruncateFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("truncate", args, {"length", "killwords", "end", "leeway"});
  const Value text = ToString(rt, self);
  const Value end = p[2] != nullptr ? ToString(rt, *p[2]) : Value::String("...");
  const int64_t length = p.Integer(0, 255),
                leeway = p[3] != nullptr && !p[3]->Is(Kind::kNone) ? p.Integer(3, 5) : 5;
  const int64_t kept = length - Length(end);
  if (kept < 0 || leeway < 0)
    Fail(kTemplateRuntime, "truncate: the length is shorter than the end");
  if (Length(text) - leeway <= length) return text;
  Value head = Slice(rt, text, Value::None(), Value::Int(kept), Value::None());
  if (!p.Truthy(1, false)) {
    const size_t space = head.text().rfind(' ');
    if (space != std::string_view::npos) head = Substring(rt.arena, head, 0, space);
  }
  return Concatenate(rt, head, end);
}

// The character that an entity of HTML stands for, from its name or number; "" if none is known.
std::string EntityText(std::string_view entity) {
  constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}, {"nbsp", "\u00A0"}};
  for (const auto& [name, text] : kNames) {
    if (entity == name) return text;
  }
  if (!entity.starts_with('#')) return "";
  entity.remove_prefix(1);
  const bool hex = entity.starts_with('x') || entity.starts_with('X');
  if (hex) entity.remove_prefix(1);
  uint32_t c = 0;
  const char* end = entity.data() + entity.size();
  const auto [stopped, error] = std::from_chars(entity.data(), end, c, hex ? 16 : 10);
  const bool valid = error == std::errc() && stopped == end && c > 0 && c < 0x110000 &&
                     !(c >= 0xD800 && c < 0xE000);
  if (!valid) return "";
  std::string text;
  AppendUtf8(&text, static_cast<char32_t>(c));
  return text;
}

// Cuts the stretches from `open` to `close` out.
std::string WithoutStretches(std::string text, std::string_view open, std::string_view close) {
  size_t kept = 0, begin;
  std::string out;
  while ((begin = text.find(open, kept)) != text.npos) {
    const size_t end = text.find(close, begin);
    if (end == text.npos) break;
    out.append(text, kept, begin - kept);
    kept = end + close.size();
  }
  return out.append(text, kept);
}

// markupsafe's striptags: comments and tags go, white space becomes single spaces, entities become
// characters.
Value StripTagsFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("striptags", args, {});
  const Value string = ToString(rt, self);
  rt.ChargeBytes(16 * string.text().size());
  const Value bare = rt.NewString(
      WithoutStretches(WithoutStretches(std::string(string.text()), "<!--", "-->"), "<", ">"));
  std::string words, out;
  for (const Value& word : Split(rt, bare, nullptr, -1))
    words.append(words.empty() ? "" : " ").append(word.text());
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t end = words[i] == '&' ? words.find(';', i) : words.npos;
    const std::string text =
        end == words.npos ? "" : EntityText(std::string_view(words).substr(i + 1, end - i - 1));
    if (text.empty()) {
      out += words[i];
    } else {
      out += text;
      i = end;
    }
  }
  return rt.NewString(out, OriginOf(string));
}

Value FileSizeFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("filesizeformat", args, {"binary"});
  if (!IsNumber(self))
    FailType(fmt::format("filesizeformat: expected a number, not {}", TypeName(self)));
  const bool binary = p.Truthy(0, false);
  const double bytes = ToDouble(self), base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::String("1 Byte");
  if (bytes < base) return rt.NewString(fmt::format("{} Bytes", static_cast<int64_t>(bytes)));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base * base;
  size_t prefix = 0;
  for (; bytes >= unit && prefix + 1 < kPrefixes.size(); ++prefix) unit *= base;
  const char letter = binary && prefix == 0 ? 'K' : kPrefixes[prefix];
  return rt.NewString(fmt::format("{:.1f} {}{}", base * bytes / unit, letter, binary ? "iB" : "B"));
}

Value XmlAttrFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("xmlattr", args, {"autospace"});
  if (!self.Is(Kind::kDict))
    FailType(fmt::format("xmlattr: expected a dict, not {}", TypeName(self)));
  TextBuilder out(rt);
  for (const DictEntry& entry : self.dict().entries) {
    if (entry.value.Is(Kind::kNone) || entry.value.IsUndefined()) continue;
    const Value key = ToString(rt, entry.key);
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos)
      Fail(kTemplateRuntime, fmt::format("Invalid character in attribute name: '{}'", key.text()));
    if (!out.text().empty() || p.Truthy(0, true)) out.Append(" ");
    out.Append(EscapeFilter(rt, key, {}));
    out.Append("=\"");
    out.Append(EscapeFilter(rt, entry.value, {}));
    out.Append("\"");
  }
  return out.Finish(rt);
}

Value WordWrapFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("wordwrap", args,
                     {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const WrapStyle style{.width = p.Integer(0, 79),
                        .break_long_words = p.Truthy(1, true),
                        .break_on_hyphens = p.Truthy(3, true)};
  if (style.width <= 0)
    Fail(kTemplateRuntime, fmt::format("invalid width {} (must be > 0)", style.width));
  const Value end =
      p[2] != nullptr && !p[2]->Is(Kind::kNone) ? ToString(rt, *p[2]) : Value::String("\n");
  const Value string = ToString(rt, self);
  TextBuilder out(rt);
  bool first = true;
  for (const Value& line : SplitLines(rt, string, false)) {
    // A line that is empty or blank stays one.
    const std::vector<Value> wrapped = Wrap(rt, line, style);
    for (size_t i = 0; i < std::max<size_t>(wrapped.size(), 1); ++i) {
      if (!std::exchange(first, false)) out.Append(end);
      if (i < wrapped.size()) out.Append(wrapped[i]);
    }
  }
  return out.Finish(rt);
}

Value UrlEncodeFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("urlencode", args, {});
  const Value string = ToString(rt, self);
  rt.ChargeBytes(8 * string.text().size());
  std::string out;
  for (const char c : string.text()) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsAsciiDigit(c) ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (plain)
      out.push_back(c);
    else
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return rt.NewString(out, OriginOf(string));
}

// A number as Python's int() or float() reads it: white space around it, single underscores inside.
std::string PlainNumber(Runtime& rt, const Value& text) {
  std::string out;
  const std::string_view s = Strip(rt, text, nullptr, StripSide::kBoth).text();
  for (size_t i = 0; i < s.size(); ++i) {
    const auto digit = [&](size_t k) { return k < s.size() && IsAsciiDigit(s[k]); };
    if (s[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    out.push_back(s[i]);
  }
  return out;
}

bool ReadFloat(std::string text, double* value) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '+' || digits.find("nan(") != digits.npos) return false;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *value);
  if (end != digits.data() + digits.size()) return false;
  if (error == std::errc::result_out_of_range)
    *value = std::strtod(std::string(digits).c_str(), nullptr);
  return error != std::errc::invalid_argument;
}

// The digits of an integer in base 10, without sign +, leading zeros or underscores; empty if it is
// none.
std::string ReadDigits(const std::string& text) {
  size_t i = !text.empty() && (text[0] == '+' || text[0] == '-');
  if (i == text.size() || text.find_first_not_of("0123456789", i) != text.npos) return "";
  i = std::min(text.find_first_not_of('0', i), text.size() - 1);
  return (text[0] == '-' && text[i] != '0' ? "-" : "") + text.substr(i);
}

bool ReadInBase(std::string_view text, int64_t base, int64_t* value) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char c = static_cast<char>(text[1] | 0x20);
    const int64_t own = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
    if (own != 0 && (base == 0 || base == own)) {
      text.remove_prefix(2);
      base = own;
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || text.starts_with('-')) return false;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *value, static_cast<int>(base));
  if (negative) *value = -*value;
  return error == std::errc() && end == text.data() + text.size();
}

bool FloatToInteger(double value, Value* result) {
  if (std::isnan(value) || std::isinf(value)) return false;
  if (std::fabs(value) >= 9.2e18) Fail(kTemplateLimit, "a float is too large to become an integer");
  *result = Value::Int(static_cast<int64_t>(value));
  return true;
}

Value IntFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("int", args, {"default", "base"});
  const Value fallback = p[0] != nullptr ? *p[0] : Value::Int(0);
  const int64_t base = p.Integer(1, 10);
  if (IsInteger(self)) return Value::Int(self.integer());
  if (self.Is(Kind::kBigInt)) return self;
  Value result;
  if (self.Is(Kind::kFloat)) return FloatToInteger(self.number(), &result) ? result : fallback;
  if (!self.IsString()) {
    if (self.IsUndefined()) FailUndefined(self);
    return fallback;
  }
  const std::string text = PlainNumber(rt, self);
  if (base != 10) {
    int64_t value = 0;
    if (ReadInBase(text, base, &value)) return Value::Int(value);
  } else if (const std::string digits = ReadDigits(text); !digits.empty()) {
    int64_t value = 0;
    const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), value).ec;
    return error == std::errc() ? Value::Int(value) : Value::BigInt(rt.arena.Copy(digits));
  }
  double value = 0;
  return ReadFloat(text, &value) && FloatToInteger(value, &result) ? result : fallback;
}

Value FloatFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("float", args, {"default"});
  if (IsNumber(self)) return Value::Float(ToDouble(self));
  if (self.IsUndefined()) FailUndefined(self);
  double value = 0;
  if (self.IsString() && ReadFloat(PlainNumber(rt, self), &value)) return Value::Float(value);
  return p[0] != nullptr ? *p[0] : Value::Float(0);
}

Value AbsFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("abs", args, {});
  if (self.IsUndefined()) FailUndefined(self);
  if (self.Is(Kind::kBigInt)) return Value::BigInt(self.text().substr(self.text()[0] == '-'));
  if (!IsNumber(self)) FailType(fmt::format("bad operand type for abs(): '{}'", TypeName(self)));
  if (self.Is(Kind::kFloat)) return Value::Float(std::fabs(self.number()));
  return self.integer() < 0 ? Negate(self) : Value::Int(self.integer());
}

// Half to even on the decimal value, as Python's round: through the exact decimal expansion.
double RoundDecimal(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits >= 0) {
    const std::string text = fmt::format("{:.{}f}", value, static_cast<int>(digits));
    double rounded = value;
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    return rounded;
  }
  if (digits < -308) return std::copysign(0.0, value);
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

Value RoundFilter(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("round", args, {"precision", "method"});
  if (self.IsUndefined()) FailUndefined(self);
  if (!IsNumber(self)) FailType(fmt::format("round: expected a number, not {}", TypeName(self)));
  const int64_t digits = p.Integer(0, 0);
  const std::string_view method = p[1] != nullptr ? ToString(rt, *p[1]).text() : "common";
  if (method == "common") {
    if (!self.Is(Kind::kFloat) && digits >= 0)
      return self.Is(Kind::kBool) ? Value::Int(self.integer()) : self;
    if (!self.Is(Kind::kFloat))
      return Value::Int(static_cast<int64_t>(RoundDecimal(ToDouble(self), digits)));
    return Value::Float(RoundDecimal(self.number(), digits));
  }
  if (method != "ceil" && method != "floor")
    Fail(kTemplateRuntime, "method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(digits)), scaled = ToDouble(self) * scale;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr Builtin kTextFilters[] = {
    {"abs", AbsFilter},
    {"capitalize", CaseFilter<Capitalize>},
    {"center", CenterFilter},
    {"e", EscapeFilter},
    {"escape", EscapeFilter},
    {"filesizeformat", FileSizeFilter},
    {"float", FloatFilter},
    {"forceescape", EscapeFilter},
    {"format", FormatFilter},
    {"indent", IndentFilter},
    {"int", IntFilter},
    {"lower", CaseFilter<ToLower>},
    {"replace", ReplaceFilter},
    {"round", RoundFilter},
    {"safe", StringFilter},
    {"string", StringFilter},
    {"striptags", StripTagsFilter},
    {"title", CaseFilter<TitleWords>},
    {"tojson", ToJsonFilter},
    {"trim", TrimFilter},
    {"truncate", TruncateFilter},
    {"upper", CaseFilter<ToUpper>},
    {"urlencode", UrlEncodeFilter},
    {"wordcount", WordCountFilter},
    {"wordwrap", WordWrapFilter},
    {"xmlattr", XmlAttrFilter},
};

}  // namespace

std::span<const Builtin> TextFilters() { return kTextFilters; }

}  // namespace forebay::text::jinja
