// Text to tokens and back, as a job needs it. The real one stands on text/; tests have their own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "job/lines/parsed_line.h"

namespace forebay::job {

// A text, or a pair of them, that becomes a vector or a score.
struct PooledText {
  std::string_view first;
  std::optional<std::string_view> second;
  bool add_special_tokens = true;  // a pair always has them
  int64_t most_tokens = 0;         // 0: all; else texts' last ones go, and those around them stay
};
struct PooledTokens {
  std::vector<int32_t> ids;
  int32_t second = 0;  // where the second text's begin; 0: there is none
};

// What tokens read as. Any thread may call.
class TokenText {
 public:
  virtual ~TokenText() = default;
  // False for a folder without a tokenizer: texts are empty then.
  virtual bool has_tokenizer() const = 0;
  // The bytes that a token stands for, maybe a part of a character; a special token's content.
  virtual std::string TokenBytes(int32_t id) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // The special token that is spelled so, if there is one.
  virtual std::optional<int32_t> SpecialToken(std::string_view) const { return std::nullopt; }
  // The text of `ids`, special tokens included.
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;
};

// Errors become 4xx results with the status' code and message. One thread at a time may call those
// below.
class TextPipeline : public TokenText {
 public:
  // Applies the chat template and tokenizes; text of message contents never turns into special
  // tokens.
  virtual base::Result<std::vector<int32_t>> RenderChat(const ChatPrompt& prompt) = 0;
  // Tokenizes a completion's prompt: special tokens in it are parsed.
  virtual base::Result<std::vector<int32_t>> Tokenize(std::string_view text,
                                                      bool add_special_tokens) = 0;
  // As Tokenize.
  virtual base::Result<PooledTokens> TokenizePooled(const PooledText& text) = 0;
};

}  // namespace forebay::job
