#include "text/word_piece.h"

#include <algorithm>

namespace forebay::text {
namespace {

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

WordPieceModel::WordPieceModel(const TokenizerSpec& spec, const Vocabulary& vocabulary)
    : vocabulary_(&vocabulary),
      prefix_(spec.continuing_prefix),
      max_chars_(spec.max_word_chars),
      unk_(spec.unk.value_or(-1)) {}

void WordPieceModel::Encode(std::string_view word, WordScratch*, std::vector<int32_t>* ids) const {
  const size_t first = ids->size();
  const auto unknown = [&] {
    ids->resize(first);
    if (unk_ >= 0) ids->push_back(unk_);
  };
  const auto chars = word.size() - static_cast<size_t>(std::ranges::count_if(word, Continues));
  if (chars > max_chars_) return unknown();
  std::string piece = prefix_;
  for (size_t begin = 0; begin < word.size();) {
    // Whole tokens are no longer than the longest, and so is what stands behind a prefix.
    size_t end = std::min(word.size(), begin + vocabulary_->longest());
    int32_t id = -1;
    for (;; --end) {
      while (end > begin && end < word.size() && Continues(word[end])) --end;
      if (end == begin) return unknown();
      const std::string_view part = word.substr(begin, end - begin);
      if (begin == 0) {
        id = vocabulary_->Find(part);
      } else {
        piece.replace(prefix_.size(), std::string::npos, part);
        id = vocabulary_->Find(piece);
      }
      if (id >= 0) break;
    }
    ids->push_back(id);
    begin = end;
  }
}

}  // namespace forebay::text
