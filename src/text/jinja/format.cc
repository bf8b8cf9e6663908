#include "text/jinja/format.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/unicode/unicode.h"

namespace forebay::text::jinja {
namespace {

constexpr int kMaxWidth = 10'000;

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =, or 0: left for text, right for numbers
  char sign = '-';
  bool alternate = false;
  bool comma = false;
  int width = 0;
  int precision = -1;
  char type = 0;
};

int ReadNumber(std::string_view text, size_t* i) {
  int value = 0;
  for (; *i < text.size() && IsAsciiDigit(text[*i]); ++*i) {
    value = value * 10 + (text[*i] - '0');
    if (value > kMaxWidth)
      Fail(kTemplateLimit, fmt::format("a width or precision is above {}", kMaxWidth));
  }
  return value;
}

std::string IntegerDigits(const Value& v, char type) {
  if (v.Is(Kind::kBigInt)) {
    if (type != 'd' && type != 0)
      Fail(kTemplateLimit, "an integer beyond 64 bits can be formatted as decimal only");
    return std::string(v.text().substr(v.text()[0] == '-'));
  }
  const uint64_t magnitude =
      v.integer() < 0 ? 0 - static_cast<uint64_t>(v.integer()) : static_cast<uint64_t>(v.integer());
  switch (type) {
    case 'x': return fmt::format("{:x}", magnitude);
    case 'X': return fmt::format("{:X}", magnitude);
    case 'o': return fmt::format("{:o}", magnitude);
    case 'b': return fmt::format("{:b}", magnitude);
    default: return fmt::format("{}", magnitude);
  }
}

std::string FloatDigits(double value, char type, int precision, bool alternate) {
  value = std::fabs(value);
  const std::string_view lower(type == 'F' || type == 'E' || type == 'G' ? "FEG" : "feg");
  if (std::isnan(value)) return lower[0] == 'F' ? "NAN" : "nan";
  if (std::isinf(value)) return lower[0] == 'F' ? "INF" : "inf";
  if (precision < 0) precision = 6;
  if (type == '%') return fmt::format("{:.{}f}%", value * 100, precision);
  if (type == 'e') return fmt::format("{:.{}e}", value, precision);
  if (type == 'E') return fmt::format("{:.{}E}", value, precision);
  if (type == 'g')
    return alternate ? fmt::format("{:#.{}g}", value, precision)
                     : fmt::format("{:.{}g}", value, precision);
  if (type == 'G') return fmt::format("{:.{}G}", value, precision);
  return fmt::format("{:.{}f}", value, precision);
}

std::string GroupThousands(const std::string& digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out + digits.substr(whole);
}

// Sign, digits and padding of a number. Numbers count as the template's text.
std::string FormatNumber(const Value& v, const Spec& spec) {
  const bool is_float =
      v.Is(Kind::kFloat) || std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  bool negative = false;
  std::string digits;
  if (is_float && spec.type != 0) {
    digits = FloatDigits(ToDouble(v), spec.type, spec.precision, spec.alternate);
    negative = std::signbit(ToDouble(v));
  } else if (is_float) {
    const std::string repr = spec.precision < 0
                                 ? FormatFloat(v.number())
                                 : fmt::format("{:.{}g}", v.number(), spec.precision);
    negative = repr[0] == '-';
    digits = repr.substr(negative);
  } else {
    digits = IntegerDigits(v, spec.type);
    negative = v.Is(Kind::kBigInt) ? v.text()[0] == '-' : v.integer() < 0;
    if (spec.alternate && spec.type != 'd' && spec.type != 0) digits.insert(0, {'0', spec.type});
  }
  if (spec.comma) digits = GroupThousands(digits);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  // Such padding stands between sign and digits; AppendPadded does all others.
  if (spec.align == '=') {
    const int missing = spec.width - static_cast<int>(sign.size() + digits.size());
    std::string fill;
    for (int i = 0; i < missing; ++i) fill += spec.fill;
    return sign + fill + digits;
  }
  return sign + digits;
}

void AppendPadded(const Value& text, const Spec& spec, char default_align, TextBuilder* out) {
  const int missing =
      spec.width - static_cast<int>(std::min<size_t>(CountChars(text.text()), kMaxWidth));
  const char align = spec.align != 0 && spec.align != '=' ? spec.align : default_align;
  const int before = missing <= 0 || align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  for (int i = 0; i < before; ++i) out->Append(spec.fill);
  out->Append(text);
  for (int i = before; i < missing; ++i) out->Append(spec.fill);
}

Value FirstChars(Runtime& rt, const Value& text, int count) {
  size_t at = 0;
  for (; count > 0 && at < text.text().size(); --count) at += CharLength(text.text()[at]);
  return Substring(rt.arena, text, 0, at);
}

// One conversion of a % format.
void PercentOne(Runtime& rt, const Value& v, const Spec& spec, TextBuilder* out) {
  switch (spec.type) {
    case 's':
    case 'r': {
      Value text = spec.type == 's' ? ToString(rt, v) : ReprString(rt, v);
      if (spec.precision >= 0) text = FirstChars(rt, text, spec.precision);
      return AppendPadded(text, spec, '>', out);
    }
    case 'c':
      if (v.IsString() && CountChars(v.text()) == 1) return AppendPadded(v, spec, '>', out);
      if (IsInteger(v) && v.integer() >= 0 && v.integer() <= 0x10FFFF) {
        std::string c;
        AppendUtf8(&c, static_cast<char32_t>(v.integer()));
        return AppendPadded(Value::String(c), spec, '>', out);
      }
      FailType("%c requires int or char");
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': {
      if (v.IsUndefined()) FailUndefined(v);
      if (!IsNumber(v)) {
        FailType(
            fmt::format("%{} format: a real number is required, not {}", spec.type, TypeName(v)));
      }
      Spec own = spec;
      if (spec.type == 'i' || spec.type == 'u') own.type = 'd';
      Value number = v;
      const bool integral = std::string_view("dxXo").find(own.type) != std::string_view::npos;
      if (integral && v.Is(Kind::kFloat)) {
        if (own.type != 'd')
          FailType(fmt::format("%{} format: an integer is required, not float", own.type));
        // %d cuts off what is behind the point; below 2^63 that is an int64.
        if (!(std::fabs(v.number()) < 9e18))
          Fail(kTemplateLimit, "a float is too large to be formatted as an integer");
        number = Value::Int(static_cast<int64_t>(v.number()));
      }
      return AppendPadded(Value::String(FormatNumber(number, own)), own, '>', out);
    }
    default: Fail(kTemplateRuntime, fmt::format("unsupported format character '{}'", spec.type));
  }
}

Spec ReadPercentSpec(std::string_view text, size_t* i) {
  Spec spec;
  bool zero = false;
  for (; *i < text.size(); ++*i) {
    const char c = text[*i];
    if (c == '-')
      spec.align = '<';
    else if (c == '0')
      zero = true;
    else if (c == '+' || (c == ' ' && spec.sign != '+'))
      spec.sign = c;
    else if (c == '#')
      spec.alternate = true;
    else
      break;
  }
  spec.width = ReadNumber(text, i);
  if (*i < text.size() && text[*i] == '.') spec.precision = ReadNumber(text, &++*i);
  // C's lengths, which Python reads and ignores.
  while (*i < text.size() && (text[*i] == 'l' || text[*i] == 'h')) ++*i;
  if (*i == text.size()) Fail(kTemplateRuntime, "incomplete format");
  spec.type = text[(*i)++];
  // Last, for whether zeros pad depends on a '-', before or behind the '0', and on the type.
  if (zero && spec.align == 0 && spec.type != 's' && spec.type != 'r' && spec.type != 'c') {
    spec.align = '=';
    spec.fill = "0";
  }
  return spec;
}

// The part of a replacement field after the colon.
Spec ReadBraceSpec(std::string_view text) {
  Spec spec;
  size_t i = 0;
  const auto is_align = [&](size_t k) {
    return k < text.size() && std::string_view("<>^=").find(text[k]) != std::string_view::npos;
  };
  const size_t first = text.empty() ? 0 : CharLength(text[0]);
  if (!text.empty() && is_align(first)) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    i = first + 1;
  } else if (is_align(0)) {
    spec.align = text[i++];
  }
  if (i < text.size() && (text[i] == '+' || text[i] == '-' || text[i] == ' '))
    spec.sign = text[i++];
  if (i < text.size() && text[i] == '#') {
    spec.alternate = true;
    ++i;
  }
  if (i < text.size() && text[i] == '0') {
    if (spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
    ++i;
  }
  spec.width = ReadNumber(text, &i);
  if (i < text.size() && text[i] == ',') {
    spec.comma = true;
    ++i;
  }
  if (i < text.size() && text[i] == '.') spec.precision = ReadNumber(text, &++i);
  if (i < text.size()) spec.type = text[i++];
  if (i < text.size()) Fail(kTemplateRuntime, "Invalid format specifier");
  return spec;
}

void BraceOne(Runtime& rt, const Value& v, std::string_view spec_text, TextBuilder* out) {
  const Spec spec = ReadBraceSpec(spec_text);
  const std::string_view number_types = "bdoxXeEfFgG%";
  if (IsNumber(v) && !(v.Is(Kind::kBool) && spec.type == 0) && spec.type != 's') {
    const bool integral = std::string_view("bdoxX").find(spec.type) != std::string_view::npos;
    if ((spec.type != 0 && number_types.find(spec.type) == number_types.npos) ||
        (integral && v.Is(Kind::kFloat))) {
      Fail(kTemplateRuntime,
           fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, TypeName(v)));
    }
    return AppendPadded(Value::String(FormatNumber(v, spec)), spec, '>', out);
  }
  if ((spec.type != 0 && spec.type != 's') ||
      (!v.IsString() && !spec_text.empty() && !v.Is(Kind::kBool))) {
    Fail(kTemplateRuntime,
         fmt::format("unsupported format string for an object of type '{}'", TypeName(v)));
  }
  Value text = ToString(rt, v);
  if (spec.precision >= 0) text = FirstChars(rt, text, spec.precision);
  AppendPadded(text, spec, '<', out);
}

// The value that a field such as `0.name[key]` stands for.
Value FieldValue(Runtime& rt, const Value& format, size_t begin, size_t end, const Arguments& args,
                 size_t* automatic) {
  const std::string_view text = format.text();
  size_t i = begin;
  while (i < end && text[i] != '.' && text[i] != '[') ++i;
  const std::string_view head = text.substr(begin, i - begin);
  Value value;
  if (head.empty() || IsAsciiDigit(head[0])) {
    size_t at = 0;
    const size_t index = head.empty() ? (*automatic)++ : static_cast<size_t>(ReadNumber(head, &at));
    if (index >= args.positional.size()) {
      Fail(kTemplateRuntime,
           fmt::format("Replacement index {} out of range for positional args tuple", index));
    }
    value = args.positional[index];
  } else {
    const auto named = std::find_if(args.named.begin(), args.named.end(),
                                    [&](const DictEntry& e) { return e.key.text() == head; });
    if (named == args.named.end())
      Fail(kTemplateRuntime, fmt::format("'{}' is not an argument of format", head));
    value = named->value;
  }
  while (i < end) {
    rt.Charge(1);
    if (text[i] == '.') {
      const size_t start = ++i;
      while (i < end && text[i] != '.' && text[i] != '[') ++i;
      value = GetAttribute(rt, value, Substring(rt.arena, format, start, i));
    } else {
      const size_t start = i + 1, close = std::min(text.find(']', start), end);
      size_t at = start;
      const bool numeric = close > start && IsAsciiDigit(text[start]);
      value = GetItem(
          rt, value,
          numeric ? Value::Int(ReadNumber(text, &at)) : Substring(rt.arena, format, start, close));
      i = close + 1;
    }
  }
  return value;
}

}  // namespace

Value PercentFormat(Runtime& rt, const Value& format, const Value& args) {
  const std::string_view text = format.text();
  rt.ChargeBytes(text.size());
  const bool is_tuple = args.Is(Kind::kTuple);
  TextBuilder out(rt);
  size_t used = 0;
  bool named = false;
  const auto next = [&]() -> const Value& {
    if (used >= (is_tuple ? args.items().size() : 1))
      FailType("not enough arguments for format string");
    return is_tuple ? args.items()[used++] : (++used, args);
  };
  for (size_t i = 0; i < text.size();) {
    const size_t percent = std::min(text.find('%', i), text.size());
    out.Append(format, i, percent);
    if (percent == text.size()) break;
    rt.Charge(1);
    i = percent + 1;
    if (i < text.size() && text[i] == '%') {
      out.Append(format, i, i + 1);
      ++i;
      continue;
    }
    Value value;
    bool keyed = false;
    if (i < text.size() && text[i] == '(') {
      const size_t close = text.find(')', i);
      if (close == text.npos) Fail(kTemplateRuntime, "incomplete format key");
      if (!args.Is(Kind::kDict)) FailType("format requires a mapping");
      const Value* found = Find(args.dict(), text.substr(i + 1, close - i - 1));
      if (found == nullptr)
        Fail(kTemplateRuntime, fmt::format("'{}'", text.substr(i + 1, close - i - 1)));
      value = *found;
      named = keyed = true;
      i = close + 1;
    }
    const Spec spec = ReadPercentSpec(text, &i);
    if (!keyed) value = next();
    PercentOne(rt, value, spec, &out);
  }
  // Python asks this of tuples and of what cannot be indexed.
  const bool indexable = args.IsArray() || args.Is(Kind::kDict) || args.IsUndefined();
  if (!named && (is_tuple || !indexable) && used < (is_tuple ? args.items().size() : 1)) {
    FailType("not all arguments converted during string formatting");
  }
  return out.Finish(rt);
}

Value BraceFormat(Runtime& rt, const Value& format, const Arguments& args) {
  const std::string_view text = format.text();
  rt.ChargeBytes(text.size());
  TextBuilder out(rt);
  size_t automatic = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", i), text.size());
    out.Append(format, i, brace);
    if (brace == text.size()) break;
    rt.Charge(1);
    i = brace + 1;
    if (i < text.size() && text[i] == text[brace]) {
      out.Append(format, i, i + 1);
      ++i;
      continue;
    }
    if (text[brace] == '}') Fail(kTemplateRuntime, "Single '}' encountered in format string");
    const size_t close = text.find('}', i);
    if (close == text.npos) Fail(kTemplateRuntime, "expected '}' before end of string");
    const size_t colon = std::min(text.find(':', i), close);
    size_t name_end = colon;
    char conversion = 0;
    if (const size_t mark = text.find('!', i); mark < colon) {
      if (mark + 2 != colon) Fail(kTemplateRuntime, "expected ':' after conversion specifier");
      conversion = text[mark + 1];
      name_end = mark;
    }
    Value value = FieldValue(rt, format, i, name_end, args, &automatic);
    if (conversion == 'r')
      value = ReprString(rt, value);
    else if (conversion == 's')
      value = ToString(rt, value);
    else if (conversion != 0)
      Fail(kTemplateRuntime, "unknown conversion specifier in a format string");
    BraceOne(rt, value,
             colon < close ? text.substr(colon + 1, close - colon - 1) : std::string_view(), &out);
    i = close + 1;
  }
  return out.Finish(rt);
}

}  // namespace forebay::text::jinja
