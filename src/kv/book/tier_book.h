// The blocks of a tier below the device. Full blocks are found by the content of the prefix that
// they end, as in the prefix index, so each goes down once. A choice's last, open block has a block
// of its own, and so have the parts of its layers' states. Pure book-keeping, like block_book.h.
//
// A tier may have two levels: blocks [0, near), then the far ones. New blocks go near. An evictable
// block that must make room moves to the far level; it is found in either.
//
// Invariants (CheckInvariants):
//  1. A block is free, kept (in the index, not pinned, evictable in LRU order) or needed (pinned).
//  2. The index has exactly the kept blocks and the full needed ones. A key lies in one
//     level.
//  3. free + kept + needed = num_blocks.
//
// After construction nothing allocates but the stays; a block costs O(1).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kv/book/prefix_index.h"

namespace forebay::kv {

// What a choice has in the tier while it waits.
struct TierStay {
  std::vector<BlockId> blocks;  // a full one for each key, in their order, then those without
};

// A full block whose content moves from one level to the other.
struct DemotedBlock {
  BlockId near = 0, far = 0;
  PrefixKey key;
};

struct TierBookStats {
  int64_t stored = 0;   // blocks that were to be written
  int64_t found = 0;    // full blocks that were there already
  int64_t evicted = 0;  // full blocks that were written over
  int64_t demoted = 0;  // that went from near to far
};

class TierBook {
 public:
  explicit TierBook(int32_t near, int32_t far = 0);
  ~TierBook();

  // Pins a block for each key, the one that has it or a new one, and `keyless` more, near ones
  // first. Evicts kept blocks when none is free. All or nothing; `spared` near blocks stay free or
  // kept. Appends to `fresh` the stay's indices of new blocks, which the caller must write.
  // REQUIRES: keys differ.
  std::optional<TierStay> Hold(std::span<const PrefixKey> keys, int64_t keyless,
                               std::vector<int32_t>* fresh, int64_t spared = 0);
  // The same of one key, where a new block is a far one if there is such a level.
  std::optional<TierStay> HoldFar(const PrefixKey& key, std::vector<int32_t>* fresh,
                                  int64_t spared = 0);
  // Pins one near block for a key until ReleaseNear; a far block is written anew. Call this only
  // while a near block is free or kept. To guarantee that, pass to Hold and HoldFar as `spared` the
  // number of blocks that may still be pinned so. A pinned block that a stay also needs does not
  // become free on ReleaseNear: count it once more.
  BlockId HoldNear(const PrefixKey& key, bool* is_fresh);
  void ReleaseNear(BlockId block);
  // What HoldNear holds is needed on, by a stay of this one block.
  void NeedOnly(BlockId block);
  // Those whose content moves since the last call: before anything is written into the near blocks.
  // Each far one is needed until it is released.
  std::vector<DemotedBlock> TakeDemoted();
  // Nothing goes to the far level any more.
  void CloseFar();
  // How many of the keys, from the first on, the tier has.
  int64_t Find(std::span<const PrefixKey> keys) const;
  // How many of the keys lie far.
  int64_t CountFar(std::span<const PrefixKey> keys) const;
  // Near blocks that are free or kept, but for what HoldNear is left of shared blocks.
  int64_t near_room() const;
  // Ends a stay: its full blocks are kept, the first the longest; those without keys are free.
  void Release(const TierStay& stay);

  // Full blocks that are there from before, each with its key: kept. REQUIRES: nothing was held
  // yet; blocks and keys differ.
  void Keep(std::span<const std::pair<BlockId, PrefixKey>> blocks);
  // The block's content is lost: it leaves the index. Stays that need it keep it pinned.
  void Lose(BlockId block);

  int32_t num_blocks() const;
  const TierBookStats& stats() const;
  // FB_CHECKs the invariants; for tests.
  void CheckInvariants() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace forebay::kv
