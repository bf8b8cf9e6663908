#include "kv/book/tier_book.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/book/lru_list.h"

namespace forebay::kv {
namespace {

struct TierBlock {
  PrefixKey key;
  int32_t stays = 0;    // that need it
  int32_t streams = 0;  // of them, by HoldNear
  bool full = false;    // has a key, and is in the index
};

struct Level {
  std::vector<BlockId> free;  // a stack
  LruList kept;

  // The level has [begin, end) of the book's blocks.
  Level(int32_t num_blocks, BlockId begin, BlockId end) : kept(num_blocks) {
    for (BlockId id = end - 1; id >= begin; --id) free.push_back(id);
  }
  int64_t room() const { return static_cast<int64_t>(free.size()) + kept.size(); }
};

}  // namespace

struct TierBook::State {
  std::vector<TierBlock> blocks;
  const BlockId first_far;
  Level near, far;
  bool far_closed = false;
  PrefixIndex index;
  TierBookStats stats;
  std::vector<DemotedBlock> demoted;
  int64_t shared = 0;  // blocks that HoldNear's need and others as well

  State(int32_t num_near, int32_t num_far)
      : blocks(num_near + num_far),
        first_far(num_near),
        near(num_near + num_far, 0, num_near),
        far(num_near + num_far, num_near, num_near + num_far),
        index(num_near + num_far) {}

  Level& LevelOf(BlockId id) { return id < first_far ? near : far; }
  int64_t far_room() const { return far_closed ? 0 : far.room(); }

  bool Shares(BlockId id) const {
    return blocks[id].streams > 0 && blocks[id].stays > blocks[id].streams;
  }
  void Count(BlockId id, int stays, int streams) {
    shared -= Shares(id);
    blocks[id].stays += stays;
    blocks[id].streams += streams;
    shared += Shares(id);
  }
  int64_t near_room() const { return near.room() - shared; }

  void Need(BlockId id) {
    if (blocks[id].stays == 0) LevelOf(id).kept.Remove(id);
    Count(id, 1, 0);
  }

  // REQUIRES: one is free or kept.
  BlockId TakeFrom(Level& level) {
    BlockId id = level.kept.oldest();
    if (!level.free.empty()) {
      id = level.free.back();
      level.free.pop_back();
    } else {
      level.kept.Remove(id);
      index.Erase(blocks[id].key);
      ++stats.evicted;
    }
    blocks[id] = {.stays = 1};
    return id;
  }
  // Where it takes a kept block's place, that goes to the far level as long as `far_places` last.
  BlockId TakeNear(int64_t* far_places) {
    if (near.free.empty() && *far_places > 0) {
      --*far_places;
      Demote(near.kept.oldest());
    }
    return TakeFrom(near);
  }
  void Demote(BlockId id) {
    const PrefixKey key = blocks[id].key;
    const BlockId to = TakeFrom(far);
    near.kept.Remove(id);
    near.free.push_back(id);
    blocks[to].key = key;
    blocks[to].full = true;
    index.Erase(key);
    index.Insert(key, to);
    demoted.push_back({id, to, key});
    ++stats.demoted;
  }
  void SetKey(BlockId id, const PrefixKey& key) {
    blocks[id].key = key;
    blocks[id].full = true;
    index.Insert(key, id);
  }

  std::optional<TierStay> Hold(std::span<const PrefixKey> keys, int64_t keyless,
                               std::vector<int32_t>* fresh, int64_t spared, bool prefer_far) {
    TierStay stay;
    int64_t wanted = keyless, near_places = near_room() - spared, far_places = far_room();
    for (const PrefixKey& key : keys) {
      const BlockId id = index.Find(key);
      stay.blocks.push_back(id);
      wanted += id < 0;
      if (id < 0) continue;
      // One that is streamed, and will be needed when that is over.
      const bool will_be = blocks[id].streams > 0 && !Shares(id);
      if (blocks[id].stays == 0 || will_be) --(id < first_far ? near_places : far_places);
    }
    // What goes far on purpose takes no near place, unless the far level is full.
    if (prefer_far && far_places >= wanted) near_places = std::min<int64_t>(near_places, 0);
    if (near_places < 0 || wanted > near_places + std::max<int64_t>(0, far_places)) return {};
    // What is there already is needed before anything is evicted.
    for (const BlockId id : stay.blocks) {
      if (id >= 0) Need(id);
    }
    stats.found += static_cast<int64_t>(keys.size()) - wanted + keyless;
    stats.stored += wanted;
    int64_t near_left = std::min(wanted, near_places);
    // Those that are not for the stay itself.
    far_places -= wanted - near_left;
    stay.blocks.resize(keys.size() + static_cast<size_t>(keyless), -1);
    for (size_t i = 0; i < stay.blocks.size(); ++i) {
      if (stay.blocks[i] >= 0) continue;
      const BlockId id = stay.blocks[i] = near_left-- > 0 ? TakeNear(&far_places) : TakeFrom(far);
      fresh->push_back(static_cast<int32_t>(i));
      if (i < keys.size()) SetKey(id, keys[i]);
    }
    return stay;
  }
};

TierBook::TierBook(int32_t near, int32_t far) : state_(std::make_unique<State>(near, far)) {}

TierBook::~TierBook() = default;

std::optional<TierStay> TierBook::Hold(std::span<const PrefixKey> keys, int64_t keyless,
                                       std::vector<int32_t>* fresh, int64_t spared) {
  return state_->Hold(keys, keyless, fresh, spared, /*prefer_far=*/false);
}

std::optional<TierStay> TierBook::HoldFar(const PrefixKey& key, std::vector<int32_t>* fresh,
                                          int64_t spared) {
  return state_->Hold(std::span(&key, 1), 0, fresh, spared, /*prefer_far=*/true);
}

BlockId TierBook::HoldNear(const PrefixKey& key, bool* is_fresh) {
  State& s = *state_;
  BlockId id = s.index.Find(key);
  *is_fresh = id < 0 || id >= s.first_far;
  if (!*is_fresh) {
    s.Need(id);
    ++s.stats.found;
  } else {
    // It lies in the far level, from which layers are not streamed: it is written again from the
    // device.
    if (id >= 0) Lose(id);
    FB_CHECK(s.near.room() > 0, "none of {} near blocks of the tier is free or kept", s.first_far);
    int64_t far_places = s.far_room();
    id = s.TakeNear(&far_places);
    s.SetKey(id, key);
    ++s.stats.stored;
  }
  s.Count(id, 0, 1);
  return id;
}

std::vector<DemotedBlock> TierBook::TakeDemoted() { return std::exchange(state_->demoted, {}); }

void TierBook::CloseFar() { state_->far_closed = true; }

int64_t TierBook::Find(std::span<const PrefixKey> keys) const {
  const auto missing =
      std::ranges::find_if(keys, [&](const PrefixKey& key) { return state_->index.Find(key) < 0; });
  return missing - keys.begin();
}

int64_t TierBook::CountFar(std::span<const PrefixKey> keys) const {
  return std::ranges::count_if(
      keys, [&](const PrefixKey& key) { return state_->index.Find(key) >= state_->first_far; });
}

int64_t TierBook::near_room() const { return state_->near_room(); }

void TierBook::ReleaseNear(BlockId block) {
  NeedOnly(block);
  Release({.blocks = {block}});
}

void TierBook::NeedOnly(BlockId block) {
  FB_CHECK(state_->blocks[block].streams > 0, "block {} of the tier is streamed by nobody", block);
  state_->Count(block, 0, -1);
}

void TierBook::Release(const TierStay& stay) {
  State& s = *state_;
  // From the end to the front, so that the children of a prefix are evicted before it.
  for (size_t i = stay.blocks.size(); i-- > 0;) {
    const BlockId id = stay.blocks[i];
    FB_CHECK(s.blocks[id].stays > 0, "block {} of the tier is released but needed by nobody", id);
    s.Count(id, -1, 0);
    if (s.blocks[id].stays > 0) continue;
    // Without a key nobody can find it again.
    if (s.blocks[id].full) {
      s.LevelOf(id).kept.AddNewest(id);
    } else {
      s.LevelOf(id).free.push_back(id);
    }
  }
}

void TierBook::Keep(std::span<const std::pair<BlockId, PrefixKey>> blocks) {
  State& s = *state_;
  for (const auto& [block, key] : blocks) s.SetKey(block, key);
  size_t taken = 0;
  for (Level* level : {&s.near, &s.far})
    taken += std::erase_if(level->free, [&](BlockId id) { return s.blocks[id].full; });
  FB_CHECK(taken == blocks.size(), "{} blocks of the tier are kept, of which {} were free",
           blocks.size(), taken);
  for (const auto& [block, key] : blocks) s.LevelOf(block).kept.AddNewest(block);
}

void TierBook::Lose(BlockId block) {
  State& s = *state_;
  if (!std::exchange(s.blocks[block].full, false)) return;
  if (s.index.Find(s.blocks[block].key) != block) return;  // It is free.
  s.index.Erase(s.blocks[block].key);
  if (s.blocks[block].stays > 0) return;
  s.LevelOf(block).kept.Remove(block);
  s.LevelOf(block).free.push_back(block);
}

int32_t TierBook::num_blocks() const { return static_cast<int32_t>(state_->blocks.size()); }
const TierBookStats& TierBook::stats() const { return state_->stats; }

void TierBook::CheckInvariants() const {
  const State& s = *state_;
  enum class Where { kNeeded, kFree, kKept };
  std::vector<Where> where(s.blocks.size(), Where::kNeeded);
  for (const Level* level : {&s.near, &s.far}) {
    const auto check_level = [&](BlockId id) {
      FB_CHECK((id < s.first_far) == (level == &s.near), "block {} of the tier is in both levels",
               id);
    };
    for (const BlockId id : level->free) {
      FB_CHECK(where[id] == Where::kNeeded, "block {} of the tier is free twice", id);
      where[id] = Where::kFree;
      check_level(id);
    }
    level->kept.ForEach([&](BlockId id) {
      FB_CHECK(where[id] == Where::kNeeded, "block {} of the tier is kept and free", id);
      where[id] = Where::kKept;
      check_level(id);
    });
  }
  int32_t indexed = 0;
  int64_t shared = 0;
  for (BlockId id = 0; id < num_blocks(); ++id) {
    const TierBlock& block = s.blocks[id];
    FB_CHECK(block.streams <= block.stays, "block {} of the tier: needed by {}, {} stream it", id,
             block.stays, block.streams);
    shared += s.Shares(id);
    FB_CHECK((block.stays > 0) == (where[id] == Where::kNeeded),
             "block {} of the tier: needed by {}, free or kept: {}", id, block.stays,
             where[id] != Where::kNeeded);
    const bool has_key = block.full && where[id] != Where::kFree;
    FB_CHECK(has_key || where[id] != Where::kKept, "block {} of the tier is kept without a key",
             id);
    FB_CHECK(!has_key || s.index.Find(block.key) == id, "block {} of the tier is not indexed", id);
    indexed += has_key;
  }
  FB_CHECK(shared == s.shared, "{} blocks are streamed and needed besides, not {}", shared,
           s.shared);
  FB_CHECK(indexed == s.index.size(), "{} full blocks in the tier, {} index entries", indexed,
           s.index.size());
}

}  // namespace forebay::kv
