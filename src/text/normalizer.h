// The normalizers of a tokenizer, with an account of which output came from untrusted input.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/precompiled.h"
#include "text/tokenizer_spec.h"
#include "text/unicode/regex.h"

namespace forebay::text {

// Half-open byte ranges, ascending, apart from each other.
struct ByteRange {
  size_t begin = 0, end = 0;
};
using ByteRanges = std::vector<ByteRange>;

// Whether [begin, end) meets one of `ranges`.
bool Overlaps(const ByteRanges& ranges, size_t begin, size_t end);
// The parts of `ranges` inside [begin, end), relative to begin.
ByteRanges Slice(const ByteRanges& ranges, size_t begin, size_t end);

// Immutable.
class Normalizer {
 public:
  // kTokenizerInvalid, kTokenizerUnsupported: a map or an expression.
  static base::Result<Normalizer> Create(std::vector<NormalizerStep> steps);
  // REQUIRES: Create makes them.
  explicit Normalizer(std::vector<NormalizerStep> steps);

  // `text` (valid UTF-8) through all steps. `untrusted` becomes the ranges of the result that any
  // untrusted byte went into. An empty text stays empty.
  std::string Apply(std::string_view text, ByteRanges* untrusted) const;
  std::string Apply(std::string_view text) const {
    ByteRanges none;
    return Apply(text, &none);
  }
  bool empty() const { return steps_.empty(); }

 private:
  struct Step {
    NormalizerStep spec;
    std::shared_ptr<const Regex> regex;
    std::shared_ptr<const PrecompiledMap> map;
  };
  Normalizer() = default;

  std::vector<Step> steps_;
};

// Canonical composition with the data that tokenizers 0.23 has, which is Unicode 9's: characters
// that came later neither compose nor change places with their neighbours.
std::string ToNfc(std::string_view text);

}  // namespace forebay::text
