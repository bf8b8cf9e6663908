// Regular expressions of tokenizer files (Oniguruma's syntax), matched by PCRE2 with Unicode 16's
// classes.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace forebay::text {

// The expression in PCRE2's syntax: \p{..}, \s, \d and \w as explicit ranges. What the two read
// differently, or what is not supported, is kTokenizerUnsupported.
base::Result<std::string> RewriteRegex(std::string_view pattern);

// Immutable and thread-safe.
class Regex {
 public:
  static base::Result<Regex> Compile(std::string_view pattern);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Walks over the matches in one text. REQUIRES: the regex and the text outlive it, the text is
  // valid UTF-8.
  class Matches {
   public:
    Matches(const Regex& regex, std::string_view text);
    Matches(const Matches&) = delete;
    ~Matches();
    // The next match, from left to right, as the reference finds them. False at the end, or where
    // one match takes more than a million steps: the rest of the text then counts as unmatched.
    bool Next(size_t* begin, size_t* end);

   private:
    const Regex& regex_;
    std::string_view text_;
    struct State;
    std::unique_ptr<State> state_;
    size_t from_ = 0;
    size_t last_end_ = std::string_view::npos;  // where the match before ended
  };

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace forebay::text
