// WordPiece (arXiv 1609.08144): the longest token that begins the word, then the longest that goes
// on, with a prefix before it.
#pragma once

#include <string>

#include "text/word_model.h"

namespace forebay::text {

class WordPieceModel final : public WordModel {
 public:
  WordPieceModel(const TokenizerSpec& spec, const Vocabulary& vocabulary);
  // A word that has no such tokens, or too many characters, is the unknown token.
  void Encode(std::string_view word, WordScratch* scratch,
              std::vector<int32_t>* ids) const override;

 private:
  const Vocabulary* vocabulary_;
  const std::string prefix_;  // of a token that goes on
  const size_t max_chars_;
  const int32_t unk_;  // -1: unknown words vanish
};

}  // namespace forebay::text
