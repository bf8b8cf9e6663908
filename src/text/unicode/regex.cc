#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/unicode/regex.h"

#include <fmt/core.h>
#include <pcre2.h>

#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "text/tokenizer_spec.h"
#include "text/unicode/unicode.h"

namespace forebay::text {
namespace {

using base::Result;
using base::Status;

// A set of code points: categories, or (kSpaces) White_Space.
constexpr CategorySet kSpaces = 0;
constexpr CategorySet kDecimal = Bit(Category::kNd);
constexpr CategorySet kWord = kLetter | kMark | Bit(Category::kNd) | Bit(Category::kPc);

std::optional<CategorySet> CategoriesNamed(std::string_view name) {
  static constexpr std::string_view kNames =
      "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCoCn";
  static constexpr std::pair<char, CategorySet> kMajor[] = {
      {'L', kLetter}, {'M', kMark},      {'N', kNumber}, {'P', kPunctuation},
      {'S', kSymbol}, {'Z', kSeparator}, {'C', kOther}};
  if (name.size() == 1) {
    for (const auto& [letter, set] : kMajor) {
      if (name[0] == letter) return set;
    }
  }
  if (name.size() == 2) {
    const size_t at = kNames.find(name);
    if (at != std::string_view::npos && at % 2 == 0) return 1u << (at / 2);
  }
  return std::nullopt;
}

// The members (or not) of `set` as the inside of a PCRE2 class. Surrogates are in no text and in no
// class.
std::string Ranges(CategorySet set, bool negated) {
  std::string out;
  const auto contains = [&](char32_t c) {
    if (c >= 0xD800 && c <= 0xDFFF) return false;
    return (set == kSpaces ? IsWhiteSpace(c) : IsIn(set, c)) != negated;
  };
  for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
    if (!contains(c)) continue;
    const char32_t first = c;
    while (c < kMaxCodePoint && contains(c + 1)) ++c;
    out += fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(first));
    if (c > first) out += fmt::format("-\\x{{{:x}}}", static_cast<uint32_t>(c));
  }
  return out;
}

// One pass over the pattern; knows whether it is inside [...].
class PatternRewriter {
 public:
  explicit PatternRewriter(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Run() {
    while (at_ < pattern_.size()) {
      if (out_.size() > 1 << 20) return Unsupported("more than 1 MiB of classes");
      const char c = pattern_[at_];
      Status status = c == '\\' ? Escape() : in_class_ ? InClass(c) : c == '(' ? Group() : Plain(c);
      if (!status.ok()) return status;
    }
    return std::move(out_);
  }

 private:
  Status Unsupported(std::string_view what) const {
    return Status(
        kTokenizerUnsupported,
        fmt::format("the expression \"{:.200}\" has {} at byte {}, which is not supported",
                    pattern_, what, at_));
  }
  char At(size_t i) const { return i < pattern_.size() ? pattern_[i] : '\0'; }
  Status Take(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
    return Status::Ok();
  }

  Status Escape() {
    const char c = At(at_ + 1);
    switch (c) {
      case 's':
      case 'S': return Class(kSpaces, c == 'S', 2);
      case 'd':
      case 'D': return Class(kDecimal, c == 'D', 2);
      case 'w':
      case 'W': return Class(kWord, c == 'W', 2);
      case 'p':
      case 'P': return Property(c == 'P');
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'v': return Control(c);
      case 'u': return FourDigits();
      default: break;
    }
    if (c == '\0' || std::isalnum(static_cast<unsigned char>(c)) ||
        static_cast<unsigned char>(c) >= 0x80) {
      return Unsupported(fmt::format("the escape \"{}\"", pattern_.substr(at_, 2)));
    }
    return Take(2);
  }

  // \v is the vertical tab in Oniguruma, a class in PCRE2.
  Status Control(char c) {
    out_ += c == 'v' ? std::string("\\x{b}") : std::string{'\\', c};
    at_ += 2;
    return Status::Ok();
  }

  Status FourDigits() {
    const std::string_view digits = pattern_.substr(std::min(at_ + 2, pattern_.size()), 4);
    for (const char d : digits) {
      if (!std::isxdigit(static_cast<unsigned char>(d))) return Unsupported("a bad \\u escape");
    }
    if (digits.size() != 4) return Unsupported("a bad \\u escape");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
    return Status::Ok();
  }

  Status Property(bool negated) {
    const size_t close = pattern_.find('}', at_);
    if (At(at_ + 2) != '{' || close == std::string_view::npos)
      return Unsupported("a property without {...}");
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const auto set = CategoriesNamed(name);
    if (!set) return Unsupported(fmt::format("the property \"{:.40}\"", name));
    return Class(*set, negated, close + 1 - at_);
  }

  Status Class(CategorySet set, bool negated, size_t length) {
    const auto [known, is_new] = ranges_.try_emplace({set, negated});
    if (is_new) known->second = Ranges(set, negated);
    out_ += in_class_ ? known->second : "[" + known->second + "]";
    at_ += length;
    return Status::Ok();
  }

  // Oniguruma nests classes and intersects them; PCRE2 does not.
  Status InClass(char c) {
    if (c == '[') return Unsupported("a class inside a class");
    if (c == '&' && At(at_ + 1) == '&') return Unsupported("an intersection of classes");
    if (c == ']') in_class_ = false;
    return Take(1);
  }

  Status Group() {
    static constexpr std::string_view kKnown[] = {"(?:",  "(?i:", "(?=", "(?!",
                                                  "(?<=", "(?<!", "(?>"};
    const std::string_view rest = pattern_.substr(at_);
    if (At(at_ + 1) == '*') return Unsupported("\"(*\"");
    if (At(at_ + 1) != '?') return Take(1);
    for (const std::string_view known : kKnown) {
      if (rest.starts_with(known)) return Take(known.size());
    }
    return Unsupported(fmt::format("the group \"{}\"", rest.substr(0, 4)));
  }

  Status Plain(char c) {
    if (c == '[') {
      in_class_ = true;
      size_t length = 1;
      if (At(at_ + length) == '^') ++length;
      if (At(at_ + length) == ']') return Unsupported("an empty class");
      return Take(length);
    }
    // {n,m}+ is possessive in PCRE2 and a repeated repetition in Oniguruma.
    if (c == '}' && At(at_ + 1) == '+') return Unsupported("\"}+\"");
    return Take(1);
  }

  std::string_view pattern_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::map<std::pair<CategorySet, bool>, std::string> ranges_;
};

constexpr uint32_t kMatchLimit = 1'000'000;
constexpr uint32_t kHeapLimitKib = 4096;

}  // namespace

base::Result<std::string> RewriteRegex(std::string_view pattern) {
  return PatternRewriter(pattern).Run();
}

struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  ~Code() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

struct Regex::Matches::State {
  pcre2_match_data* data = nullptr;
  ~State() { pcre2_match_data_free(data); }
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

base::Result<Regex> Regex::Compile(std::string_view pattern) {
  FB_ASSIGN_OR_RETURN(const std::string rewritten, RewriteRegex(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                    PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                    &error, &offset, nullptr);
  if (code->code == nullptr) {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    return Status(kTokenizerUnsupported,
                  fmt::format("the expression \"{:.200}\" does not compile: {}", pattern,
                              reinterpret_cast<const char*>(message.data())));
  }
  // where there is no JIT, the interpreter matches
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  code->context = pcre2_match_context_create(nullptr);
  FB_CHECK(code->context != nullptr, "out of memory");
  pcre2_set_match_limit(code->context, kMatchLimit);
  pcre2_set_depth_limit(code->context, kMatchLimit);
  pcre2_set_heap_limit(code->context, kHeapLimitKib);
  return Regex(std::move(code));
}

Regex::Matches::Matches(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), state_(std::make_unique<State>()) {
  state_->data = pcre2_match_data_create(1, nullptr);
  FB_CHECK(state_->data != nullptr, "out of memory");
}
Regex::Matches::~Matches() = default;

bool Regex::Matches::Next(size_t* begin, size_t* end) {
  while (from_ <= text_.size()) {
    const auto match = [&](uint32_t options) {
      return pcre2_match(regex_.code_->code, reinterpret_cast<PCRE2_SPTR>(text_.data()),
                         text_.size(), from_, PCRE2_NO_UTF_CHECK | options, state_->data,
                         regex_.code_->context);
    };
    int count = match(0);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = match(PCRE2_NO_JIT);
    if (count < 0) return false;
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(state_->data);
    *begin = offsets[0];
    *end = offsets[1];
    const bool empty = *begin >= *end;
    from_ = *end;
    if (empty) {  // look for the next one a character further on
      if (from_ < text_.size()) {
        DecodeUtf8(text_, &from_);
      } else {
        ++from_;
      }
      if (*begin == last_end_ || *begin > *end) continue;
    }
    last_end_ = *end;
    return true;
  }
  return false;
}

}  // namespace forebay::text
