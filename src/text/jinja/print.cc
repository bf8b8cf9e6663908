#include "text/jinja/print.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/operators.h"
#include "text/unicode/unicode.h"

namespace forebay::text::jinja {
namespace {

// Copies `text`, with the characters for which `escape(c, &replacement)` is true replaced.
template <typename Escape>
void PrintEscaped(const Value& string, TextBuilder* out, Escape escape) {
  const std::string_view text = string.text();
  std::string replacement;
  size_t copied = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = DecodeUtf8(text, &i);
    if (!escape(c, &replacement)) continue;
    out->Append(string, copied, begin);
    out->AppendFor(string, begin, i, replacement);
    copied = i;
  }
  out->Append(string, copied, text.size());
}

bool IsPrintable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  return !IsIn(kOther | kSeparator, c);
}

void PrintReprOfString(const Value& string, TextBuilder* out) {
  const std::string_view text = string.text();
  const bool has_single = text.find('\'') != text.npos, has_double = text.find('"') != text.npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out->Append({&quote, 1});
  PrintEscaped(string, out, [quote](char32_t c, std::string* replacement) {
    if (c == '\n')
      *replacement = "\\n";
    else if (c == '\r')
      *replacement = "\\r";
    else if (c == '\t')
      *replacement = "\\t";
    else if (c == '\\')
      *replacement = "\\\\";
    else if (c == static_cast<char32_t>(quote))
      *replacement = std::string("\\") + quote;
    else if (IsPrintable(c))
      return false;
    else if (c < 0x100)
      *replacement = fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    else if (c < 0x10000)
      *replacement = fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    else
      *replacement = fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    return true;
  });
  out->Append({&quote, 1});
}

void PrintJsonString(const Value& string, bool ensure_ascii, TextBuilder* out) {
  out->Append("\"");
  PrintEscaped(string, out, [ensure_ascii](char32_t c, std::string* replacement) {
    const auto hex = [](uint32_t unit) { return fmt::format("\\u{:04x}", unit); };
    if (c == '"')
      *replacement = "\\\"";
    else if (c == '\\')
      *replacement = "\\\\";
    else if (c == '\n')
      *replacement = "\\n";
    else if (c == '\r')
      *replacement = "\\r";
    else if (c == '\t')
      *replacement = "\\t";
    else if (c == '\f')
      *replacement = "\\f";
    else if (c == '\b')
      *replacement = "\\b";
    else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000))
      *replacement = hex(c);
    else if (ensure_ascii && c >= 0x10000) {
      // JSON's escapes are UTF-16: a surrogate pair.
      const uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
      *replacement = hex(0xD800 + (rest >> 10)) + hex(0xDC00 + (rest & 0x3FF));
    } else
      return false;
    return true;
  });
  out->Append("\"");
}

void PrintItems(Runtime& rt, std::span<const Value> items, TextBuilder* out, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Append(", ");
    PrintRepr(rt, items[i], out, depth + 1);
  }
}

template <typename Entries>
void PrintEntries(Runtime& rt, const Entries& entries, TextBuilder* out, int depth) {
  out->Append("{");
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out->Append(", ");
    PrintRepr(rt, entries[i].key, out, depth + 1);
    out->Append(": ");
    PrintRepr(rt, entries[i].value, out, depth + 1);
  }
  out->Append("}");
}

void PrintRange(std::span<const Value> items, TextBuilder* out) {
  const int64_t start = items.empty() ? 0 : items[0].integer();
  // A range is kept as its values: its arguments are told from the first two and the last.
  const int64_t step = items.size() < 2 ? 1 : items[1].integer() - start;
  const int64_t stop = items.empty() ? 0 : items.back().integer() + step;
  out->Append(step == 1 ? fmt::format("range({}, {})", start, stop)
                        : fmt::format("range({}, {}, {})", start, stop, step));
}

class JsonPrinter {
 public:
  JsonPrinter(Runtime& rt, const JsonStyle& style, TextBuilder* out)
      : rt_(rt), style_(style), out_(out) {}

  void Print(const Value& v, int depth) {
    if (depth > kMaxValueDepth) Fail(kTemplateLimit, "a value is nested too deeply for tojson");
    rt_.Charge(1);
    switch (v.kind()) {
      case Kind::kNone: return out_->Append("null");
      case Kind::kBool: return out_->Append(v.boolean() ? "true" : "false");
      case Kind::kString:
        rt_.ChargeBytes(4 * v.text().size());
        return PrintJsonString(v, style_.ensure_ascii, out_);
      case Kind::kInt:
      case Kind::kBigInt: return jinja::Print(rt_, v, out_);
      case Kind::kFloat: return out_->Append(Number(v.number()));
      case Kind::kList:
      case Kind::kTuple: return PrintList(v.items(), depth);
      case Kind::kDict: return PrintDict(v.dict().entries, depth);
      case Kind::kUndefined:
        if (v.missing() == Missing::kUnsafe) FailUndefined(v);
        FailType("Object of type Undefined is not JSON serializable");
      default: FailType("Object of type " + std::string(TypeName(v)) + " is not JSON serializable");
    }
  }

 private:
  static std::string Number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FormatFloat(value);
  }

  void NewLine(int depth) {
    if (!style_.indented) return;
    out_->Append("\n");
    rt_.ChargeBytes(32 * static_cast<size_t>(depth));
    for (int i = 0; i < depth; ++i) out_->Append(style_.indent);
  }

  void PrintList(std::span<const Value> items, int depth) {
    out_->Append("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_->Append(style_.item_separator);
      NewLine(depth + 1);
      Print(items[i], depth + 1);
    }
    if (!items.empty()) NewLine(depth);
    out_->Append("]");
  }

  void PrintKey(const Value& key) {
    if (key.IsString()) return PrintJsonString(key, style_.ensure_ascii, out_);
    if (!IsNumber(key) && !key.Is(Kind::kNone)) {
      FailType("keys must be str, int, float, bool or None, not " + std::string(TypeName(key)));
    }
    out_->Append("\"");
    Print(key, 0);
    out_->Append("\"");
  }

  void PrintDict(std::span<const DictEntry> entries, int depth) {
    if (style_.sort_keys) {
      const std::span<DictEntry> sorted = rt_.arena.NewArray<DictEntry>(entries.size());
      std::copy(entries.begin(), entries.end(), sorted.begin());
      std::stable_sort(sorted.begin(), sorted.end(), [&](const DictEntry& a, const DictEntry& b) {
        return Less(a.key, b.key, &rt_);
      });
      entries = sorted;
    }
    out_->Append("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_->Append(style_.item_separator);
      NewLine(depth + 1);
      PrintKey(entries[i].key);
      out_->Append(style_.key_separator);
      Print(entries[i].value, depth + 1);
    }
    if (!entries.empty()) NewLine(depth);
    out_->Append("}");
  }

  Runtime& rt_;
  const JsonStyle& style_;
  TextBuilder* out_;
};

}  // namespace

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // d.ddde[+-]xx, the shortest that reads back.
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(),
                  exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits.append(text.substr(2, e - 2));
  const int count = static_cast<int>(digits.size());
  // From here on Python's repr has an exponent.
  if (exponent < -4 || exponent >= 16) {
    out.append(digits, 0, 1);
    if (count > 1) out.append(".").append(digits, 1, std::string::npos);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto point = static_cast<size_t>(exponent + 1);
  if (digits.size() <= point) return out + digits + std::string(point - digits.size(), '0') + ".0";
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

void Print(Runtime& rt, const Value& v, TextBuilder* out) {
  switch (v.kind()) {
    case Kind::kString: rt.ChargeBytes(v.text().size()); return out->Append(v);
    case Kind::kUndefined: return;
    case Kind::kInt: {
      char digits[24];
      const auto end = std::to_chars(digits, digits + sizeof(digits), v.integer()).ptr;
      return out->Append({digits, static_cast<size_t>(end - digits)});
    }
    default: return PrintRepr(rt, v, out);
  }
}

Value ToString(Runtime& rt, const Value& v) {
  if (v.IsString()) return v;
  TextBuilder out(rt);
  Print(rt, v, &out);
  return out.Finish(rt);
}

void PrintRepr(Runtime& rt, const Value& v, TextBuilder* out, int depth) {
  if (depth > kMaxValueDepth) Fail(kTemplateLimit, "a value is nested too deeply to be printed");
  rt.Charge(1);
  switch (v.kind()) {
    case Kind::kUndefined: return out->Append("Undefined");
    case Kind::kNone: return out->Append("None");
    case Kind::kBool: return out->Append(v.boolean() ? "True" : "False");
    case Kind::kInt: return Print(rt, v, out);
    case Kind::kBigInt: return out->Append(v.text());
    case Kind::kFloat: return out->Append(FormatFloat(v.number()));
    case Kind::kString: rt.ChargeBytes(4 * v.text().size()); return PrintReprOfString(v, out);
    case Kind::kList:
      out->Append("[");
      PrintItems(rt, v.items(), out, depth);
      return out->Append("]");
    case Kind::kTuple:
      out->Append("(");
      PrintItems(rt, v.items(), out, depth);
      return out->Append(v.items().size() == 1 ? ",)" : ")");
    case Kind::kRange: return PrintRange(v.items(), out);
    case Kind::kDictView:
      out->Append(v.view() == View::kItems  ? "dict_items(["
                  : v.view() == View::kKeys ? "dict_keys(["
                                            : "dict_values([");
      PrintItems(rt, v.items(), out, depth);
      return out->Append("])");
    case Kind::kDict: return PrintEntries(rt, v.dict().entries, out, depth);
    case Kind::kNamespace:
      out->Append("<Namespace ");
      PrintEntries(rt, v.ns().entries.first(v.ns().size), out, depth);
      return out->Append(">");
    default: return out->Append("<" + std::string(TypeName(v)) + " object>");
  }
}

Value ReprString(Runtime& rt, const Value& v) {
  TextBuilder out(rt);
  PrintRepr(rt, v, &out);
  return out.Finish(rt);
}

void PrintJson(Runtime& rt, const Value& v, const JsonStyle& style, TextBuilder* out) {
  JsonPrinter(rt, style, out).Print(v, 0);
}

}  // namespace forebay::text::jinja
