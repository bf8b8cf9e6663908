// Text to token ids and back, as Hugging Face's tokenizers does it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"
#include "text/word_model.h"

namespace forebay::text {

struct EncodeOptions {
  bool add_special_tokens = true;  // the ids that the file wants around a text, say a BOS
  bool parse_special = true;       // added tokens are recognised in the text
  // 0: all; else of more the text's last ones go, and those around it stay.
  int64_t most_tokens = 0;
};

// A stretch of a text. In text with parse_special = false no added token is recognised (but see
// EncodeSegments).
struct Segment {
  std::string_view text;
  bool parse_special = true;
};

// Immutable; every method may be called by many threads at once. Ids that no token has are skipped
// by decoding.
class Tokenizer {
 public:
  // `folder` holds tokenizer.json and perhaps the files beside it (tokenizer_config.h). Warnings go
  // to the log.
  static base::Result<std::unique_ptr<Tokenizer>> FromHuggingFace(const std::string& folder);
  static base::Result<std::unique_ptr<Tokenizer>> FromSpec(TokenizerSpec spec);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Bytes that are no UTF-8 are read as U+FFFD, as Python's errors="replace" does.
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The ids of the segments' concatenation: words run across their borders. An added token is
  // recognised only where every byte of it lies in segments with parse_special, be it marked
  // special or not: "<think>" and "<｜User｜>" are not, yet they are control. Only tokens of white
  // space that are not special are recognised everywhere. Each segment is made valid UTF-8 for
  // itself.
  std::vector<int32_t> EncodeSegments(std::span<const Segment> segments,
                                      bool add_special_tokens) const;

  // Two texts as one, say a query and what is ranked by it, with the ids that the file wants around
  // them; nothing: it says nothing of pairs. Ids from `second` on are the second text's. Of more
  // than `most_tokens` (0: all) CutPair takes some.
  struct Pair {
    std::vector<int32_t> ids;
    size_t second = 0;
  };
  std::optional<Pair> EncodePair(std::string_view first, std::string_view second,
                                 int64_t most_tokens = 0) const;
  // Cuts two texts to `room` tokens together, as Hugging Face's truncation=True does: the longer
  // one loses its last tokens, and both lose them once they are equally long.
  static void CutPair(std::vector<int32_t>* first, std::vector<int32_t>* second, size_t room);

  // The text of `ids`; what is no UTF-8 in it becomes U+FFFD.
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const;

  // The bytes that a token stands for, somewhere inside a text; "" if there is no such token.
  std::string TokenBytes(int32_t id) const;
  // TokenBytes with U+FFFD for what is no UTF-8.
  std::string TokenText(int32_t id) const;
  // The token spelled as in the file, added or not.
  std::optional<int32_t> TokenToId(std::string_view token) const;
  bool IsSpecial(int32_t id) const { return Has(id) && special_[id]; }

  // One more than the greatest id.
  int32_t vocab_size() const { return tokens_.size(); }
  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }
  // See TokenizerSpec.
  const std::vector<int32_t>& ends() const { return ends_; }
  const std::vector<std::pair<std::string, std::string>>& named() const { return named_; }

 private:
  friend class Detokenizer;

  Tokenizer() = default;
  base::Status Build(TokenizerSpec spec);
  base::Status PlaceAdded(TokenizerSpec* spec, std::vector<bool>* findable);
  void BuildMatchers(const std::vector<AddedToken>& added);
  std::vector<int32_t> EncodeValid(std::string_view text, const ByteRanges& untrusted,
                                   bool add_special_tokens) const;
  bool Has(int32_t id) const { return id >= 0 && id < tokens_.size(); }

  // By id: bytes if byte_level_, else as spelled. Finds what byte-pair encoding may produce:
  // nothing special.
  Vocabulary tokens_;
  bool byte_level_ = false;
  std::vector<bool> special_;
  std::unordered_map<std::string, int32_t> added_ids_;  // by content
  std::unique_ptr<Normalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::unique_ptr<WordModel> model_;
  AddedTokenMatcher raw_matcher_;         // on the text as given
  AddedTokenMatcher normalized_matcher_;  // then on normalized text
  DecoderSpec decoder_;
  std::optional<int32_t> bos_, eos_;
  std::vector<int32_t> ends_, prefix_, suffix_;
  std::optional<PairTemplate> pair_;
  std::vector<std::pair<std::string, std::string>> named_;
};

}  // namespace forebay::text
