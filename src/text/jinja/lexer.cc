#include "text/jinja/lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "text/unicode/unicode.h"

namespace forebay::text::jinja {
namespace {

constexpr std::string_view kDigits = "0123456789";

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

std::string_view TrimEnd(std::string_view text) {
  size_t end = 0;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = DecodeUtf8(text, &i);
    if (!IsWhiteSpace(c) && !(c >= 0x1C && c <= 0x1F)) end = i;
  }
  return text.substr(0, end);
}

// Python's escapes in a string literal; an unknown one keeps its backslash.
std::string Unescape(std::string_view text, uint32_t line) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '\\') {
      out.push_back(text[i++]);
      continue;
    }
    const char c = text[i + 1];  // the lexer never ends a literal after a backslash
    i += 2;
    static constexpr std::string_view kNames = "\\'\"abfnrtv", kChars = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t k = kNames.find(c); k != kNames.npos) {
      out.push_back(kChars[k]);
    } else if (c == '\n') {
      continue;
    } else if (c >= '0' && c <= '7') {
      uint32_t code = 0;
      for (int n = 0; n < 3 && i - 1 < text.size() && text[i - 1] >= '0' && text[i - 1] <= '7';
           ++n, ++i) {
        code = code * 8 + static_cast<uint32_t>(text[i - 1] - '0');
      }
      --i;
      AppendUtf8(&out, code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const std::string_view digits = text.substr(i, count);
      uint32_t code = 0;
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
      if (digits.size() != count || error != std::errc() || end != digits.data() + count) {
        Fail(kTemplateSyntax,
             fmt::format("template line {}: a string has a bad \\{} escape", line, c));
      }
      AppendUtf8(&out, code);
      i += count;
    } else {
      out.push_back('\\');
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

void Lexer::FailAt(const std::string& message) const {
  Fail(kTemplateSyntax, fmt::format("template line {}: {}", line_, message));
}

void Lexer::MoveTo(size_t at) {
  line_ += static_cast<uint32_t>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                            source_.begin() + static_cast<ptrdiff_t>(at), '\n'));
  at_ = at;
}

size_t Lexer::SkipSpace(size_t at) const {
  while (at < source_.size()) {
    size_t next = at;
    const char32_t c = DecodeUtf8(source_, &next);
    if (!IsWhiteSpace(c) && !(c >= 0x1C && c <= 0x1F)) break;
    at = next;
  }
  return at;
}

size_t Lexer::AfterEnd(size_t end, char sign, bool trims_newline) const {
  if (sign == '-') return SkipSpace(end);
  return trims_newline && sign != '+' && At(end) == '\n' ? end + 1 : end;
}

std::string_view Lexer::TextBefore(size_t tag, char sign, bool is_block) const {
  const std::string_view text = source_.substr(at_, tag - at_);
  if (sign == '-') return TrimEnd(text);
  if (sign == '+' || !is_block) return text;
  const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
  const bool from_line_start = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
  return from_line_start && SkipSpace(at_ + line) >= tag ? text.substr(0, line) : text;
}

// Matches `{%[+-]? word [+-]?%}` at `tag`. The begin tag knows no `+%}` and does not trim a
// newline.
bool Lexer::MatchKeyword(size_t tag, std::string_view word, bool is_end, char* sign,
                         size_t* after) const {
  size_t i = tag + 2;
  *sign = At(i) == '-' || At(i) == '+' ? source_[i++] : '\0';
  i = SkipSpace(i);
  if (source_.substr(i, word.size()) != word) return false;
  i = SkipSpace(i + word.size());
  const char end_sign = At(i) == '-' || (is_end && At(i) == '+') ? source_[i++] : '\0';
  if (source_.substr(std::min(i, source_.size()), 2) != "%}") return false;
  *after = AfterEnd(i + 2, end_sign, is_end);
  return true;
}

Token Lexer::ReadRaw(size_t after) {
  MoveTo(after);
  for (size_t tag = source_.find("{%", at_); tag != source_.npos;
       tag = source_.find("{%", tag + 1)) {
    char sign;
    size_t end;
    if (!MatchKeyword(tag, "endraw", true, &sign, &end)) continue;
    const Token token = Make(TokenKind::kText, TextBefore(tag, sign, true));
    MoveTo(end);
    return token;
  }
  FailAt("a raw block is not closed by endraw");
}

void Lexer::SkipComment(size_t tag) {
  const size_t begin = tag + 2 + (At(tag + 2) == '-' || At(tag + 2) == '+');
  const size_t end = source_.find("#}", begin);
  if (end == source_.npos) FailAt("a comment is not closed by #}");
  const char sign =
      end > begin && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : '\0';
  MoveTo(AfterEnd(end + 2, sign, true));
}

Token Lexer::NextData() {
  while (at_ < source_.size()) {
    size_t tag = source_.find('{', at_);
    while (tag != source_.npos && At(tag + 1) != '{' && At(tag + 1) != '%' && At(tag + 1) != '#') {
      tag = source_.find('{', tag + 1);
    }
    if (tag == source_.npos) {
      const Token token = Make(TokenKind::kText, source_.substr(at_));
      MoveTo(source_.size());
      return token;
    }
    const char type = source_[tag + 1];
    const char sign = At(tag + 2) == '-' || At(tag + 2) == '+' ? source_[tag + 2] : '\0';
    const Token text = Make(TokenKind::kText, TextBefore(tag, sign, type != '{'));
    MoveTo(tag);
    if (!text.text.empty()) return text;  // comes back to the same tag, with nothing before it
    char raw_sign;
    size_t after;
    if (type == '#') {
      SkipComment(tag);
    } else if (type == '%' && MatchKeyword(tag, "raw", false, &raw_sign, &after)) {
      const Token raw = ReadRaw(after);
      if (!raw.text.empty()) return raw;
    } else {
      mode_ = type == '%' ? Mode::kBlock : Mode::kVariable;
      MoveTo(tag + 2 + (sign != '\0'));
      return Make(type == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    }
  }
  return Make(TokenKind::kEnd, "");
}

bool Lexer::TakeTagEnd(Token* token) {
  if (!brackets_.empty()) return false;
  const bool block = mode_ == Mode::kBlock;
  const char sign = At(at_) == '-' || (block && At(at_) == '+') ? source_[at_] : '\0';
  const size_t end = at_ + (sign != '\0');
  if (source_.substr(std::min(end, source_.size()), 2) != (block ? "%}" : "}}")) return false;
  *token = Make(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
  MoveTo(AfterEnd(end + 2, sign, block));
  mode_ = Mode::kData;
  return true;
}

Token Lexer::Next() {
  if (mode_ == Mode::kData) return NextData();
  MoveTo(SkipSpace(at_));
  if (at_ == source_.size())
    FailAt(mode_ == Mode::kBlock ? "a tag is not closed by %}"
                                 : "an expression is not closed by }}");
  Token token;
  if (TakeTagEnd(&token)) return token;
  const char c = source_[at_];
  if (IsAsciiDigit(c)) return ReadNumber();
  if (c == '\'' || c == '"') return ReadString();
  if (!IsNameStart(c)) return ReadOperator();
  size_t end = at_ + 1;
  while (end < source_.size() && (IsNameStart(source_[end]) || IsAsciiDigit(source_[end]))) ++end;
  token = Make(TokenKind::kName, source_.substr(at_, end - at_));
  at_ = end;
  return token;
}

Token Lexer::ReadString() {
  const char quote = source_[at_];
  bool escaped = false;
  size_t end = at_ + 1;
  while (end < source_.size() && source_[end] != quote) {
    if (source_[end] == '\\') {
      escaped = true;
      ++end;
    }
    ++end;
  }
  if (end >= source_.size()) FailAt("a string is not closed");
  const std::string_view raw = source_.substr(at_ + 1, end - at_ - 1);
  const Token token = Make(TokenKind::kString, escaped ? arena_.Copy(Unescape(raw, line_)) : raw);
  MoveTo(end + 1);
  return token;
}

Token Lexer::ReadNumber() {
  const auto skip = [&](size_t i, std::string_view digits) {
    while (i < source_.size() && (digits.find(source_[i]) != digits.npos ||
                                  (source_[i] == '_' && digits.find(At(i + 1)) != digits.npos &&
                                   i + 1 < source_.size()))) {
      ++i;
    }
    return i;
  };
  TokenKind kind = TokenKind::kInteger;
  size_t end;
  const char radix = source_[at_] == '0' ? static_cast<char>(At(at_ + 1) | 0x20) : '\0';
  if (radix == 'x' || radix == 'o' || radix == 'b') {
    end = skip(at_ + 2, radix == 'x' ? "0123456789abcdefABCDEF" : radix == 'o' ? "01234567" : "01");
  } else {
    end = skip(at_, kDigits);
    if (At(end) == '.' && IsAsciiDigit(At(end + 1))) {
      kind = TokenKind::kFloat;
      end = skip(end + 1, kDigits);
    }
    if ((At(end) | 0x20) == 'e') {
      const size_t digits = end + 1 + (At(end + 1) == '+' || At(end + 1) == '-');
      if (IsAsciiDigit(At(digits))) {
        kind = TokenKind::kFloat;
        end = skip(digits, kDigits);
      }
    }
  }
  std::string_view text = source_.substr(at_, end - at_);
  if (text.find('_') != text.npos) {
    std::string plain(text);
    plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
    text = arena_.Copy(plain);
  }
  if (kind == TokenKind::kInteger && text.size() > 1 && text[0] == '0' && IsAsciiDigit(text[1]) &&
      text.find_first_not_of('0') != text.npos) {
    FailAt("an integer begins with 0");
  }
  at_ = end;
  return Make(kind, text);
}

Token Lexer::ReadOperator() {
  static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
  size_t length = 1;
  for (const std::string_view op : kTwo) {
    if (source_.substr(at_, 2) == op) length = 2;
  }
  const char c = source_[at_];
  if (length == 1 && std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
    FailAt(fmt::format("unexpected character '{}'", c));
  }
  if (c == '(' || c == '[' || c == '{') brackets_.push_back(c);
  if (c == ')' || c == ']' || c == '}') {
    const char open = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (brackets_.empty() || brackets_.back() != open) FailAt(fmt::format("unexpected '{}'", c));
    brackets_.pop_back();
  }
  const Token token = Make(TokenKind::kOperator, source_.substr(at_, length));
  at_ += length;
  return token;
}

}  // namespace forebay::text::jinja
