// Finds added tokens in a text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalizer.h"
#include "text/tokenizer_spec.h"

namespace forebay::text {

// Immutable.
class AddedTokenMatcher {
 public:
  // text[begin, end) is the token `id`, or (id < 0) lies between tokens.
  using PieceSink = std::function<void(size_t begin, size_t end, int32_t id)>;

  // Adds a token to be looked for as `pattern`. An empty pattern matches nothing.
  void Add(std::string pattern, const AddedToken& token);
  // REQUIRES: called once, after the last Add.
  void Finish();

  // Cuts valid UTF-8 into non-empty pieces, in order, at the leftmost longest tokens. A match that
  // touches `untrusted` does not exist, unless the token is white space and not special: such a
  // token is text, not control.
  void Cut(std::string_view text, const ByteRanges& untrusted, const PieceSink& sink) const;

 private:
  struct Pattern {
    std::string text;
    int32_t id;
    bool single_word, lstrip, rstrip, anywhere;
  };

  const Pattern* LongestAt(std::string_view text, size_t begin, const ByteRanges& untrusted) const;

  std::vector<Pattern> patterns_;  // by text; of equal texts the last added one is kept
  // patterns that begin with byte b: [first_byte_[b], first_byte_[b + 1])
  uint32_t first_byte_[257] = {};
};

}  // namespace forebay::text
