// Cuts text into the words that byte-pair encoding sees.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace forebay::text {

// Immutable and thread-safe.
class PreTokenizer {
 public:
  using Sink = std::function<void(std::string_view word)>;

  static base::Result<PreTokenizer> Create(const std::vector<PreTokenizerStep>& steps);

  // Hands every non-empty word of `text` (valid UTF-8, a piece between added tokens) to `sink`, in
  // order. `at_start`: the piece is the beginning of the whole text. A word lives only during the
  // call.
  void Split(std::string_view text, bool at_start, const Sink& sink) const;

  // The rest of the pipeline after one step.
  class Next {
   public:
    void operator()(std::string_view piece, bool at_start) const;

   private:
    friend class PreTokenizer;
    Next(const PreTokenizer* pre_tokenizer, size_t step, const Sink* sink)
        : pre_tokenizer_(pre_tokenizer), step_(step), sink_(sink) {}
    const PreTokenizer* pre_tokenizer_;
    size_t step_;
    const Sink* sink_;
  };

  class Step {
   public:
    virtual ~Step() = default;
    virtual void Split(std::string_view piece, bool at_start, const Next& next) const = 0;
  };

 private:
  std::vector<std::unique_ptr<Step>> steps_;
};

// The expressions that published tokenizers use, matched by hand-written code where behavior is
// isolated.
inline constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr char kDeepSeekNumbersPattern[] = R"(\p{N}{1,3})";
inline constexpr char kDeepSeekCjkPattern[] = "[一-龥\u3040-ゟ゠-ヿ]+";
inline constexpr char kDeepSeekPattern[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
// Mistral's, which PCRE2 matches.
inline constexpr char kTekkenPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The hand-written matcher of `pattern`, or null: the end of the match that begins at text[begin],
// or `begin` if none does. REQUIRES: begin < text.size(), valid UTF-8.
using MatchFunction = size_t (*)(std::string_view text, size_t begin);
MatchFunction KnownMatcher(std::string_view pattern);

}  // namespace forebay::text
