#include "kv/book/tier_book.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/book/lru_list.h"

namespace forebay::kv {
namespace {

struct Block {
  PrefixKey key;
  int32_t stays = 0;  // that need it
  bool full = false;  // has a key, and is in the index
};

}  // namespace

struct TierBook::State {
  std::vector<Block> blocks;
  std::vector<BlockId> free;  // a stack
  LruList kept;
  PrefixIndex index;
  TierBookStats stats;

  explicit State(int32_t num_blocks) : blocks(num_blocks), kept(num_blocks), index(num_blocks) {
    for (BlockId id = num_blocks - 1; id >= 0; --id) free.push_back(id);
  }

  int32_t needed() const {
    return static_cast<int32_t>(blocks.size()) - kept.size() - static_cast<int32_t>(free.size());
  }

  void Need(BlockId id) {
    if (blocks[id].stays++ == 0) kept.Remove(id);
  }

  // REQUIRES: one is free or kept.
  BlockId Take() {
    BlockId id = kept.oldest();
    if (!free.empty()) {
      id = free.back();
      free.pop_back();
    } else {
      kept.Remove(id);
      index.Erase(blocks[id].key);
      ++stats.evicted;
    }
    blocks[id] = {.stays = 1};
    ++stats.stored;
    return id;
  }
};

TierBook::TierBook(int32_t num_blocks) : state_(std::make_unique<State>(num_blocks)) {}

TierBook::~TierBook() = default;

std::optional<TierStay> TierBook::Hold(std::span<const PrefixKey> keys, bool open,
                                       std::vector<int32_t>* fresh, int64_t spared) {
  State& s = *state_;
  TierStay stay{.open = open};
  int64_t wanted = open ? 1 : 0,
          room = static_cast<int64_t>(s.free.size()) + s.kept.size() - spared;
  for (const PrefixKey& key : keys) {
    const BlockId id = s.index.Find(key);
    stay.blocks.push_back(id);
    wanted += id < 0;
    room -= id >= 0 && s.blocks[id].stays == 0;
  }
  if (wanted > room) return std::nullopt;
  // What is there already is needed before anything is evicted.
  for (const BlockId id : stay.blocks) {
    if (id >= 0) s.Need(id);
  }
  s.stats.found += static_cast<int64_t>(keys.size()) - wanted + (open ? 1 : 0);
  if (open) stay.blocks.push_back(-1);
  for (size_t i = 0; i < stay.blocks.size(); ++i) {
    if (stay.blocks[i] >= 0) continue;
    const BlockId id = stay.blocks[i] = s.Take();
    fresh->push_back(static_cast<int32_t>(i));
    if (i == keys.size()) continue;
    s.blocks[id].key = keys[i];
    s.blocks[id].full = true;
    s.index.Insert(keys[i], id);
  }
  s.stats.needed_peak = std::max(s.stats.needed_peak, s.needed());
  return stay;
}

int64_t TierBook::Find(std::span<const PrefixKey> keys) const {
  const auto missing =
      std::ranges::find_if(keys, [&](const PrefixKey& key) { return state_->index.Find(key) < 0; });
  return missing - keys.begin();
}

void TierBook::Release(const TierStay& stay) {
  State& s = *state_;
  // From the end to the front, so that the children of a prefix are evicted before it.
  for (size_t i = stay.blocks.size(); i-- > 0;) {
    const BlockId id = stay.blocks[i];
    FB_CHECK(s.blocks[id].stays > 0, "block {} of the tier is released but needed by nobody", id);
    if (--s.blocks[id].stays > 0) continue;
    if (s.blocks[id].full) {
      s.kept.AddNewest(id);
    } else {
      s.free.push_back(id);
    }
  }
}

void TierBook::Keep(BlockId block, const PrefixKey& key) {
  State& s = *state_;
  FB_CHECK(std::erase(s.free, block) == 1, "block {} of the tier is kept, and not free", block);
  s.blocks[block] = {.key = key, .full = true};
  s.index.Insert(key, block);
  s.kept.AddNewest(block);
}

void TierBook::Lose(BlockId block) {
  State& s = *state_;
  if (!std::exchange(s.blocks[block].full, false)) return;
  if (s.index.Find(s.blocks[block].key) != block) return;  // It is free.
  s.index.Erase(s.blocks[block].key);
  if (s.blocks[block].stays > 0) return;
  s.kept.Remove(block);
  s.free.push_back(block);
}

int32_t TierBook::num_blocks() const { return static_cast<int32_t>(state_->blocks.size()); }
int32_t TierBook::needed_blocks() const { return state_->needed(); }
const TierBookStats& TierBook::stats() const { return state_->stats; }

void TierBook::CheckInvariants() const {
  const State& s = *state_;
  enum class Where { kNeeded, kFree, kKept };
  std::vector<Where> where(s.blocks.size(), Where::kNeeded);
  for (const BlockId id : s.free) {
    FB_CHECK(where[id] == Where::kNeeded, "block {} of the tier is free twice", id);
    where[id] = Where::kFree;
  }
  s.kept.ForEach([&](BlockId id) {
    FB_CHECK(where[id] == Where::kNeeded, "block {} of the tier is kept and free", id);
    where[id] = Where::kKept;
  });
  int32_t indexed = 0;
  for (BlockId id = 0; id < num_blocks(); ++id) {
    const Block& block = s.blocks[id];
    FB_CHECK((block.stays > 0) == (where[id] == Where::kNeeded),
             "block {} of the tier: needed by {}, free or kept: {}", id, block.stays,
             where[id] != Where::kNeeded);
    const bool has_key = block.full && where[id] != Where::kFree;
    FB_CHECK(has_key || where[id] != Where::kKept, "block {} of the tier is kept without a key",
             id);
    FB_CHECK(!has_key || s.index.Find(block.key) == id, "block {} of the tier is not indexed", id);
    indexed += has_key;
  }
  FB_CHECK(indexed == s.index.size(), "{} full blocks in the tier, {} index entries", indexed,
           s.index.size());
}

}  // namespace forebay::kv
