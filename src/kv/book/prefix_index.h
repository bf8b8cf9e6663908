// A hash table from the content of a prefix to the block at its
// end.
//
// A key is a 128-bit hash chained over full blocks: of the salt, then of the parent's key and the
// block's tokens. If generated rows differ in bits from prompt rows, the first block with generated
// rows also hashes the prompt's length. Two different prefixes of one index with the same key
// would share KV wrongly; for n blocks the chance is about n^2 / 2^129 (2^-89 for a million
// blocks), so tokens are not compared again on a hit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace forebay::kv {

using BlockId = int32_t;

struct PrefixKey {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const PrefixKey&, const PrefixKey&) = default;
};

// What keeps apart the keys of equal tokens.
struct KeySalt {
  KeySalt(uint64_t salt = 0, int64_t prompt_tokens = INT64_MAX)
      : salt(salt), prompt_tokens(prompt_tokens) {}

  uint64_t salt;  // set for a sequence that shares with none
  // The sequence's prompt length if generated rows differ in bits from prompt rows, else no bound.
  // Only sequences with the same prompt length find blocks that end after it.
  int64_t prompt_tokens;
};

// The key before any block.
PrefixKey RootKey(const KeySalt& salt);
// The key of the block with `tokens`, number `block` of its sequence, that follows that of
// `parent`.
PrefixKey ChainKey(const PrefixKey& parent, std::span<const int32_t> tokens,
                   const KeySalt& salt = {}, int64_t block = 0);
// Appends keys of full blocks of `tokens` to `keys` until it has the first `blocks` of them.
void ExtendKeys(std::span<const int32_t> tokens, const KeySalt& salt, int64_t blocks,
                std::vector<PrefixKey>* keys);

// Open addressing with linear probing, at most half full; a removal closes its gap, so there are no
// tombstones and the table never grows.
class PrefixIndex {
 public:
  explicit PrefixIndex(int32_t max_blocks);

  // The block of `key`, or -1.
  BlockId Find(const PrefixKey& key) const;
  // REQUIRES: `key` is not in the index, fewer than max_blocks are.
  void Insert(const PrefixKey& key, BlockId block);
  // REQUIRES: `key` is in the index.
  void Erase(const PrefixKey& key);
  int32_t size() const { return size_; }

 private:
  struct Entry {
    PrefixKey key;
    BlockId block = -1;  // -1: empty
  };
  // Where `key` is, or the empty entry that ends its probe.
  uint64_t Locate(const PrefixKey& key) const;

  std::vector<Entry> entries_;  // a power of two
  uint64_t mask_ = 0;
  int32_t max_blocks_ = 0;
  int32_t size_ = 0;
};

}  // namespace forebay::kv
