// What a tokenizer is made of, whichever file it came from (tokenizer_json.h, gguf_tokenizer.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace forebay::text {

// Ill-formed or contradictory tokenizer data.
inline constexpr base::ErrorCode kTokenizerInvalid{"tokenizer_invalid"};
inline base::Status InvalidTokenizer(std::string message) {
  return base::Status(kTokenizerInvalid, std::move(message));
}
// A component that this tokenizer does not have.
inline constexpr base::ErrorCode kTokenizerUnsupported{"tokenizer_unsupported"};

// U+2581, sentencepiece's visible space.
inline constexpr char kMetaspace[] = "\xE2\x96\x81";

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;      // a control token: Decode can skip it
  bool single_word = false;  // matches only where no letter, digit or "_" is beside it
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // swallows the white space after it
  bool normalized = false;   // looked for, itself normalized, in normalized text
};

struct NormalizerStep {
  enum class Kind {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kPrepend,
    kReplace,
    kLowercase,       // character by character
    kDropMarks,       // combining marks
    kDropNonspacing,  // BertNormalizer's: nonspacing marks alone
    kCleanText,       // BertNormalizer's: controls go, white space becomes spaces
    kPadIdeographs,   // BertNormalizer's: spaces around Chinese characters
    kStrip,           // white space at the ends goes
    kPrecompiled,
  };
  Kind kind = Kind::kNfc;
  std::string pattern;  // kReplace: what is replaced, literally or as a regular expression
  std::string content;  // kPrepend, kReplace; kPrecompiled: the map (precompiled.h)
  bool regex = false;   // kReplace
  bool left = true, right = true;  // kStrip
};

struct PreTokenizerStep {
  enum class Kind { kSplit, kDigits, kByteLevel, kMetaspace, kWhitespace, kPunctuation };
  // What becomes of a match (kSplit): cut off, dropped, joined to a neighbour, or joined to the
  // matches beside it.
  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prepend { kNever, kFirst, kAlways };
  Kind kind = Kind::kSplit;

  std::string pattern;   // kSplit: a regular expression in Oniguruma's syntax, or a literal
  bool literal = false;  // kSplit
  bool invert = false;   // kSplit: what the pattern does not match is the match
  Behavior behavior = Behavior::kIsolated;
  bool individual = false;            // kDigits: every numeric character alone
  bool prefix_space = false;          // kByteLevel: " " before a piece that does not begin with one
  bool gpt2_split = false;            // kByteLevel: split by GPT-2's expression
  Prepend prepend = Prepend::kNever;  // kMetaspace
  bool split = false;                 // kMetaspace: a new piece at every U+2581
  // kWhitespace drops white space between pieces; kPunctuation cuts as `behavior` says.
};

struct DecoderSpec {
  // kJoin puts a space between tokens. kMetaspace turns U+2581 into spaces. kPieces replaces,
  // decodes byte tokens and strips, in that order.
  // kWordPiece puts a space before tokens that do not begin with the prefix, which goes.
  enum class Kind { kJoin, kByteLevel, kMetaspace, kPieces, kWordPiece };
  struct Replacement {
    std::string pattern, content;
  };
  Kind kind = Kind::kJoin;
  bool drop_first = false;                // kMetaspace: U+2581 vanishes from the first token
  std::vector<Replacement> replacements;  // kPieces, in order
  bool byte_fallback = false;             // kPieces: "<0x0A>" is the byte 0A
  // kPieces: so many spaces at most go from the start of the text
  uint32_t strip_spaces = 0;
  std::string prefix;    // kWordPiece
  bool cleanup = false;  // kWordPiece: no space before punctuation and English contractions
};

// Ids around two texts that are encoded as one.
struct PairTemplate {
  std::vector<int32_t> prefix, middle, suffix;
};

// Two neighbouring tokens and what they become. The least rank goes first, then the leftmost.
struct Merge {
  int32_t left = 0, right = 0, result = 0;
  uint32_t rank = 0;
};

struct TokenizerSpec {
  enum class Model { kBpe, kWordPiece, kUnigram };
  Model model = Model::kBpe;
  std::vector<std::string> tokens;  // by id; "" where there is none. Spelled as in the file
  std::vector<Merge> merges;
  // an id beyond `tokens`, or the id that `tokens` has for the content
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizers;
  std::vector<PreTokenizerStep> pre_tokenizers;  // kByteLevel, if there, is the last
  DecoderSpec decoder;
  bool ignore_merges = false;     // a word that is a token is that token
  bool byte_fallback = false;     // an unknown character becomes its "<0x..>" tokens
  bool fuse_unk = false;          // neighbouring unknown characters become one `unk`
  std::vector<double> scores;     // kUnigram, by id
  std::string continuing_prefix;  // kWordPiece: of tokens inside a word
  size_t max_word_chars = 100;    // kWordPiece: longer words are unknown
  std::optional<int32_t> unk, bos, eos;
  std::vector<int32_t> ends;            // what ends an answer, as the tokenizer's own files say
  std::vector<int32_t> prefix, suffix;  // what add_special_tokens puts around the text
  std::optional<PairTemplate> pair;     // and around two of them, where the file says so
  // Tokens that the files name ("bos_token"), by what they spell: variables of templates.
  std::vector<std::pair<std::string, std::string>> named;
  // Where the files disagree or lack something, in sentences that name the file.
  std::vector<std::string> warnings;
};

// Ids may have holes; this bounds what a file can make us allocate.
constexpr uint64_t TokenIdLimit(uint64_t token_count) {
  return std::min<uint64_t>(token_count + 65536, 1 << 30);
}
// Bounds the time that looking for added tokens takes.
inline constexpr size_t kMaxAddedTokenBytes = 256;

}  // namespace forebay::text
