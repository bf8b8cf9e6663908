// Cuts a template into text and tokens, with trim_blocks, lstrip_blocks and the whitespace signs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/arena.h"

namespace forebay::text::jinja {

enum class TokenKind : uint8_t {
  kText,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,   // text is decoded
  kInteger,  // text without underscores
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t line = 0;
  std::string_view text;
};

class Lexer {
 public:
  // `source` has \n line ends only; both must outlive the tokens. Next fails with kTemplateSyntax.
  Lexer(std::string_view source, Arena& arena) : source_(source), arena_(arena) {}

  Token Next();

 private:
  enum class Mode : uint8_t { kData, kVariable, kBlock };

  [[noreturn]] void FailAt(const std::string& message) const;
  Token NextData();
  // Text up to a tag at `tag`, with what the tag's sign and lstrip_blocks take off its end.
  std::string_view TextBefore(size_t tag, char sign, bool is_block) const;
  bool TakeTagEnd(Token* token);
  // Position after "%}" or the like at `at`, whose sign has been found to be `sign`; white space
  // included.
  size_t AfterEnd(size_t end, char sign, bool trims_newline) const;
  bool MatchKeyword(size_t tag, std::string_view word, bool is_end, char* sign,
                    size_t* after) const;
  Token ReadRaw(size_t after);
  void SkipComment(size_t tag);
  Token ReadString();
  Token ReadNumber();
  Token ReadOperator();
  Token Make(TokenKind kind, std::string_view text) const { return {kind, line_, text}; }
  void MoveTo(size_t at);
  size_t SkipSpace(size_t at) const;
  char At(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }

  std::string_view source_;
  Arena& arena_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  Mode mode_ = Mode::kData;
  std::string brackets_;  // open ones, innermost last
};

}  // namespace forebay::text::jinja
