// Unigram (arXiv 1804.10959): the tokens whose scores have the greatest sum.
#pragma once

#include "text/word_model.h"

namespace forebay::text {

// Tokens that begin at a place of a text, by a trie over bytes.
class PrefixTrie {
 public:
  // Tokens that `vocabulary` finds.
  explicit PrefixTrie(const Vocabulary& vocabulary);
  // visit(length, id) for each token that begins `text`, the shortest first.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (size_t length = 1; length <= text.size(); ++length) {
      node = Child(node, static_cast<uint8_t>(text[length - 1]));
      if (node == 0) return;
      if (nodes_[node].id >= 0) visit(length, nodes_[node].id);
    }
  }

 private:
  struct Node {
    uint32_t first_child = 0;
    int32_t id = -1;  // -1: no token ends here
    uint16_t children = 0;
    uint8_t label = 0;
  };
  // 0: there is none.
  uint32_t Child(uint32_t node, uint8_t label) const;

  std::vector<Node> nodes_;  // children of a node side by side, by label
};

class UnigramModel final : public WordModel {
 public:
  UnigramModel(const TokenizerSpec& spec, const Vocabulary& vocabulary);
  // In time O(n x longest token). As tokenizers does it, a character that no token is costs 10 more
  // than the least score; of equal ways the first found stays.
  void Encode(std::string_view word, WordScratch* scratch,
              std::vector<int32_t>* ids) const override;

 private:
  void FindWays(std::string_view word, WordScratch* scratch) const;
  void AddUnknown(std::string_view text, std::vector<int32_t>* ids) const;

  const Vocabulary* vocabulary_;
  const PrefixTrie trie_;
  const std::vector<double> scores_;  // by id
  const bool byte_fallback_;
  const int32_t unk_;  // -1: unknown characters vanish
  double unk_score_ = 0;
  int32_t byte_ids_[256];  // of "<0x..>", or -1
};

}  // namespace forebay::text
