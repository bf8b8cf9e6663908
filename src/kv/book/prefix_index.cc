#include "kv/book/prefix_index.h"

#include <bit>

#include "base/check.h"
#include "base/rng.h"
#include "kv/book/block_tokens.h"

namespace forebay::kv {
namespace {

// Added to each value in the second lane, so that the lanes are two different functions.
constexpr uint64_t kHighLane = 0xD1B54A32D192ED03ull;

void Fold(PrefixKey* key, uint64_t value) {
  key->low = base::Combine64(key->low, value);
  key->high = base::Combine64(key->high, value + kHighLane);
}

}  // namespace

PrefixKey RootKey(const KeySalt& salt) {
  PrefixKey key;
  Fold(&key, salt.salt);
  return key;
}

PrefixKey ChainKey(const PrefixKey& parent, std::span<const int32_t> tokens, const KeySalt& salt,
                   int64_t block) {
  PrefixKey key = parent;
  // The block in which the prompt ends, and so each behind it, knows where that was.
  if (block == salt.prompt_tokens / kBlockTokens)
    Fold(&key, static_cast<uint64_t>(salt.prompt_tokens));
  size_t i = 0;
  for (; i + 1 < tokens.size(); i += 2) {
    Fold(&key, static_cast<uint64_t>(static_cast<uint32_t>(tokens[i])) << 32 |
                   static_cast<uint32_t>(tokens[i + 1]));
  }
  if (i < tokens.size()) Fold(&key, static_cast<uint32_t>(tokens[i]));
  return key;
}

void ExtendKeys(std::span<const int32_t> tokens, const KeySalt& salt, int64_t blocks,
                std::vector<PrefixKey>* keys) {
  for (auto i = static_cast<int64_t>(keys->size()); i < blocks; ++i) {
    const PrefixKey parent = i == 0 ? RootKey(salt) : keys->back();
    keys->push_back(ChainKey(
        parent, tokens.subspan(static_cast<size_t>(i * kBlockTokens), size_t{kBlockTokens}), salt,
        i));
  }
}

PrefixIndex::PrefixIndex(int32_t max_blocks) : max_blocks_(max_blocks) {
  FB_CHECK(max_blocks >= 0, "max_blocks is {}", max_blocks);
  entries_.resize(std::bit_ceil(2 * static_cast<uint64_t>(max_blocks) + 1));
  mask_ = entries_.size() - 1;
}

uint64_t PrefixIndex::Locate(const PrefixKey& key) const {
  uint64_t i = key.low & mask_;
  while (entries_[i].block >= 0 && entries_[i].key != key) i = (i + 1) & mask_;
  return i;
}

BlockId PrefixIndex::Find(const PrefixKey& key) const { return entries_[Locate(key)].block; }

void PrefixIndex::Insert(const PrefixKey& key, BlockId block) {
  Entry& entry = entries_[Locate(key)];
  FB_CHECK(entry.block < 0 && size_ < max_blocks_,
           "block {}: key held by block {}, {} of {} entries", block, entry.block, size_,
           max_blocks_);
  entry = {key, block};
  ++size_;
}

void PrefixIndex::Erase(const PrefixKey& key) {
  uint64_t gap = Locate(key);
  FB_CHECK(entries_[gap].block >= 0, "erased key is not in the index");
  --size_;
  // An entry may move back into the gap unless its home lies between the gap (exclusive) and
  // itself.
  for (uint64_t i = (gap + 1) & mask_; entries_[i].block >= 0; i = (i + 1) & mask_) {
    const uint64_t home = entries_[i].key.low & mask_;
    if (((i - home) & mask_) < ((i - gap) & mask_)) continue;
    entries_[gap] = entries_[i];
    gap = i;
  }
  entries_[gap].block = -1;
}

}  // namespace forebay::kv
