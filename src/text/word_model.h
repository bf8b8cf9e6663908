// The model of a tokenizer: cuts one word into tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"

namespace forebay::text {

// Buffers of one thread, reused from word to word.
struct WordScratch {
  // Byte-pair encoding.
  std::vector<int32_t> ids;
  std::vector<uint32_t> lengths;
  std::vector<uint64_t> heap;
  // Unigram: the best way to each byte of the word.
  struct Arrival {
    double score;
    int64_t from;  // -1: none
    int32_t id;
  };
  std::vector<Arrival> arrivals;
};

// Immutable; many threads may call it at once.
class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the ids of `word`, which is valid UTF-8 or, in a byte-level tokenizer, bytes.
  virtual void Encode(std::string_view word, WordScratch* scratch,
                      std::vector<int32_t>* ids) const = 0;
};

// The model that the spec describes. `vocabulary` must outlive it.
std::unique_ptr<WordModel> MakeWordModel(const TokenizerSpec& spec, const Vocabulary& vocabulary,
                                         bool byte_level);

}  // namespace forebay::text
