// Byte-pair encoding of one word.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"
#include "text/word_model.h"

namespace forebay::text {

// (left, right) -> merge; open addressing.
class MergeTable {
 public:
  struct Entry {
    int32_t left = -1, right = -1, result = -1;
    uint32_t rank = 0;
  };
  MergeTable() = default;
  // Where two merges have the same pair, the last counts.
  explicit MergeTable(const std::vector<Merge>& merges);
  // The merge of the pair, or null.
  const Entry* Find(int32_t left, int32_t right) const;

 private:
  std::vector<Entry> slots_ = std::vector<Entry>(1);  // a power of two of them; left < 0 is free
};

// Thread-safe and immutable, but for notes of facts that are cheaper to remember than to find
// again.
class BpeModel final : public WordModel {
 public:
  // `vocabulary` (which must outlive the model) holds bytes if `byte_level`, else UTF-8. Words are
  // spelled alike.
  BpeModel(const TokenizerSpec& spec, const Vocabulary& vocabulary, bool byte_level);

  // Appends the ids of `word`, in time O(n log n), with 16 bytes of scratch for each of its bytes
  // (byte_level) or characters.
  void Encode(std::string_view word, WordScratch* scratch,
              std::vector<int32_t>* ids) const override;

 private:
  enum class Whole : uint8_t { kUnknown, kYes, kNo };

  void EncodeWord(std::string_view word, WordScratch* scratch, std::vector<int32_t>* ids) const;
  void InitialSymbols(std::string_view word, std::vector<int32_t>* ids) const;
  void MergeShort(std::vector<int32_t>* ids) const;
  void MergeLong(WordScratch* scratch) const;

  const Vocabulary* vocabulary_;
  MergeTable merges_;
  bool byte_level_, ignore_merges_, byte_fallback_, fuse_unk_;
  int32_t unk_;               // -1: unknown characters vanish
  int32_t byte_ids_[256];     // byte_level: the byte's token; else its "<0x..>" token; or -1
  bool splits_at_metaspace_;  // no merge joins anything to a U+2581 that follows it
  // Whether the text of a token, as a word, is that one token.
  std::unique_ptr<std::atomic<Whole>[]> whole_;
};

}  // namespace forebay::text
