#include "text/word_model.h"

#include "text/bpe.h"
#include "text/unigram.h"
#include "text/word_piece.h"

namespace forebay::text {

std::unique_ptr<WordModel> MakeWordModel(const TokenizerSpec& spec, const Vocabulary& vocabulary,
                                         bool byte_level) {
  switch (spec.model) {
    case TokenizerSpec::Model::kBpe: break;
    case TokenizerSpec::Model::kWordPiece:
      return std::make_unique<WordPieceModel>(spec, vocabulary);
    case TokenizerSpec::Model::kUnigram: return std::make_unique<UnigramModel>(spec, vocabulary);
  }
  return std::make_unique<BpeModel>(spec, vocabulary, byte_level);
}

}  // namespace forebay::text
