#include "text/jinja/json_reader.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <deque>
#include <limits>

#include "text/unicode/unicode.h"

namespace forebay::text::jinja {
namespace {

class Reader {
 public:
  Reader(Arena& arena, std::string_view json, Origin origin)
      : arena_(arena), json_(json), origin_(origin) {}

  Value Document() {
    if (json_.size() > std::numeric_limits<uint32_t>::max()) FailAt("is 4 GiB or more");
    if (!IsValidUtf8(json_)) FailAt("is not valid UTF-8");
    const Value value = ReadValue(0);
    SkipSpace();
    if (at_ != json_.size()) FailAt("has text after the value");
    return value;
  }

 private:
  [[noreturn]] void FailAt(std::string_view what) {
    Fail(base::kJsonInvalid, fmt::format("invalid JSON: it {} (byte {})", what, at_));
  }

  char Peek() const { return at_ < json_.size() ? json_[at_] : '\0'; }

  void SkipSpace() {
    while (at_ < json_.size() &&
           (json_[at_] == ' ' || json_[at_] == '\n' || json_[at_] == '\t' || json_[at_] == '\r')) {
      ++at_;
    }
  }

  bool Take(char c) {
    SkipSpace();
    if (Peek() != c || at_ >= json_.size()) return false;
    ++at_;
    return true;
  }

  Value ReadValue(int depth) {
    if (depth > kMaxJsonDepth) {
      Fail(kTemplateLimit,
           fmt::format("JSON is nested more than {} levels deep (byte {})", kMaxJsonDepth, at_));
    }
    SkipSpace();
    switch (Peek()) {
      case '{': return ReadObject(depth);
      case '[': return ReadArray(depth);
      case '"': return ReadString();
      case 't': return Word("true", Value::Bool(true));
      case 'f': return Word("false", Value::Bool(false));
      case 'n': return Word("null", Value::None());
      default: return ReadNumber();
    }
  }

  Value Word(std::string_view word, Value value) {
    if (json_.substr(at_, word.size()) != word) FailAt("has an unknown word");
    at_ += word.size();
    return value;
  }

  // Items wait on stack_ until their number is known.
  Value ReadArray(int depth) {
    ++at_;
    const size_t base = stack_.size();
    if (!Take(']')) {
      do stack_.push_back(ReadValue(depth + 1));
      while (Take(','));
      if (!Take(']')) FailAt("lacks ',' or ']' in an array");
    }
    const std::span<Value> items = arena_.NewArray<Value>(stack_.size() - base);
    for (size_t i = items.size(); i-- > 0; stack_.pop_back()) items[i] = stack_.back();
    return Value::Array(Kind::kList, items);
  }

  Value ReadObject(int depth) {
    ++at_;
    const size_t base = stack_.size();
    if (!Take('}')) {
      do {
        SkipSpace();
        if (Peek() != '"') FailAt("lacks a key in an object");
        stack_.push_back(ReadString());
        if (!Take(':')) FailAt("lacks ':' after a key");
        stack_.push_back(ReadValue(depth + 1));
      } while (Take(','));
      if (!Take('}')) FailAt("lacks ',' or '}' in an object");
    }
    const std::span<DictEntry> entries = arena_.NewArray<DictEntry>((stack_.size() - base) / 2);
    for (size_t i = entries.size(); i-- > 0;) {
      entries[i].value = stack_.back();
      stack_.pop_back();
      entries[i].key = stack_.back();
      stack_.pop_back();
    }
    return MakeDict(arena_, entries);
  }

  Value ReadString() {
    const size_t begin = ++at_;
    while (at_ < json_.size() && json_[at_] != '"' && json_[at_] != '\\' &&
           static_cast<unsigned char>(json_[at_]) >= 0x20) {
      ++at_;
    }
    if (Peek() != '\\') {
      CloseString();
      return Value::String(json_.substr(begin, at_ - 1 - begin), origin_);
    }
    std::string text(json_.substr(begin, at_ - begin));
    while (at_ < json_.size() && json_[at_] != '"') {
      if (static_cast<unsigned char>(json_[at_]) < 0x20) break;
      if (json_[at_] != '\\') {
        text.push_back(json_[at_++]);
        continue;
      }
      ++at_;
      ReadEscape(&text);
    }
    CloseString();
    return Value::String(arena_.Copy(text), origin_);
  }

  void CloseString() {
    if (at_ < json_.size() && static_cast<unsigned char>(json_[at_]) < 0x20)
      FailAt("has a control character in a string");
    if (Peek() != '"') FailAt("ends inside a string");
    ++at_;
  }

  void ReadEscape(std::string* text) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kChars = "\"\\/\b\f\n\r\t";
    const char c = Peek();
    ++at_;
    if (const size_t i = kNames.find(c); i != kNames.npos) return text->push_back(kChars[i]);
    if (c != 'u') FailAt("has an unknown escape");
    char32_t unit = HexUnit();
    if (unit >= 0xD800 && unit < 0xDC00 && json_.substr(at_, 2) == "\\u") {
      at_ += 2;
      const char32_t low = HexUnit();
      if (low < 0xDC00 || low > 0xDFFF) FailAt("has half of a surrogate pair");
      unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    }
    if (unit >= 0xD800 && unit <= 0xDFFF) FailAt("has half of a surrogate pair");
    AppendUtf8(text, unit);
  }

  char32_t HexUnit() {
    uint32_t value = 0;
    const std::string_view digits = json_.substr(std::min(at_, json_.size()), 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 4 || error != std::errc() || end != digits.data() + 4)
      FailAt("has a bad \\u escape");
    at_ += 4;
    return value;
  }

  size_t SkipDigits() {
    const size_t begin = at_;
    while (Peek() >= '0' && Peek() <= '9') ++at_;
    return at_ - begin;
  }

  Value ReadNumber() {
    const size_t begin = at_;
    if (Peek() == '-') ++at_;
    const char lead = Peek();
    const size_t whole = SkipDigits();
    if (whole == 0)
      FailAt(begin == json_.size() ? "ends too early" : "has an unexpected character");
    if (lead == '0' && whole > 1) FailAt("has a number with a leading zero");
    bool integral = true;
    if (Peek() == '.') {
      integral = false;
      ++at_;
      if (SkipDigits() == 0) FailAt("has a number without digits after the point");
    }
    if (Peek() == 'e' || Peek() == 'E') {
      integral = false;
      ++at_;
      if (Peek() == '+' || Peek() == '-') ++at_;
      if (SkipDigits() == 0) FailAt("has a number without digits in the exponent");
    }
    const std::string_view number = json_.substr(begin, at_ - begin);
    if (integral) {
      int64_t value = 0;
      const auto error = std::from_chars(number.data(), number.data() + number.size(), value).ec;
      return error == std::errc() ? Value::Int(value) : Value::BigInt(number);
    }
    double value = 0;
    if (std::from_chars(number.data(), number.data() + number.size(), value).ec ==
        std::errc::result_out_of_range) {
      value = OutOfRange(number);
    }
    return Value::Float(value);
  }

  // 0 or infinity, as strtod tells them apart.
  static double OutOfRange(std::string_view number) {
    return std::strtod(std::string(number).c_str(), nullptr);
  }

  Arena& arena_;
  std::string_view json_;
  Origin origin_;
  size_t at_ = 0;
  std::deque<Value> stack_;
};

}  // namespace

base::Result<Value> ReadJson(Arena& arena, std::string_view json, Origin origin) {
  try {
    return Reader(arena, json, origin).Document();
  } catch (const Failure& failure) {
    return failure.status;
  }
}

}  // namespace forebay::text::jinja
