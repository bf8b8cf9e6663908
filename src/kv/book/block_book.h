// Who holds which KV block, which full blocks are shared by content, and how far each sequence has
// come. Pure book-keeping: no memory is touched here; kv/ and the engine act on what the book says.
//
// Invariants (CheckInvariants):
//  1. A block is free, cached (reference count 0, in the prefix index, evictable) or held (count >
//     0).
//  2. A sequence holds exactly ceil(reserved / 32) blocks in table order, except the released ones
//     at its front;
//     committed <= computed <= reserved.
//  3. Only full blocks of committed tokens are in the index; a shared block (count > 1) is never
//     written.
//  4. free + cached + held = num_blocks.
//
// computed: positions whose KV the device holds or is writing (a step may run ahead); committed:
// positions whose tokens are final. A full block enters the index when it is committed.
//
// Sharing. Two sequences that commit equal blocks keep both; the index has the first. So a
// table entry never changes while it is held. A released duplicate replaces the indexed
// block if that was evicted meanwhile, and becomes free otherwise. A sequence releases its
// blocks from its end to its front, so LRU order evicts the children of a prefix before the
// prefix.
//
// New content takes, in this order: free blocks that were in use before; spent cached blocks, while
// some blocks were never used; the unused blocks; any cached block. The least recently used go
// first. A caller of Close marks as spent the blocks that it expects no request to find, such as an
// answer's KV. The first hit on a spent block ends the distinction.
//
// After construction only lists filled for a caller allocate. Each block costs O(1), each token
// O(1).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "kv/book/block_tokens.h"
#include "kv/book/prefix_index.h"

namespace forebay::kv {

using SequenceId = int32_t;  // index of a live sequence in the book, reused after Close

struct BlockBookOptions {
  int32_t num_blocks = 0;
  int32_t max_sequences = 0;  // live at once
  int32_t max_blocks_per_sequence = 0;
  bool prefix_sharing = true;
  bool notes_evictions = false;
};

// A block whose content goes: somebody else writes over it.
struct EvictedBlock {
  PrefixKey key;
  BlockId block;
};

struct BlockBookStats {
  int64_t prefix_blocks_hit = 0;
  int64_t evictions = 0;
  int32_t held_peak = 0;
};

// What the prefix index has of a sequence that is not open yet.
struct CachedPrefix {
  int64_t tokens = 0;  // in full blocks
  // Those in blocks that live sequences hold: sharing them takes no available block.
  int64_t held_tokens = 0;
};

class BlockBook {
 public:
  explicit BlockBook(const BlockBookOptions& options);
  BlockBook(BlockBook&&) noexcept;
  ~BlockBook();

  // Opens a sequence whose known tokens are `tokens`, taking full blocks from the prefix index: at
  // most those before `max_cached` tokens (a caller that needs logits of a prompt row passes less
  // than its length; at least one token is always left to compute). Returns its id;
  // committed() and computed() are then the cached tokens. REQUIRES: an id is free (live
  // sequences < max_sequences). `salt`: of its keys (prefix_index.h). `keys` (if given): of these
  // tokens' first full blocks, as far as earlier calls have come; hashed once, then kept.
  SequenceId Open(std::span<const int32_t> tokens, const KeySalt& salt, int64_t max_cached,
                  std::vector<PrefixKey>* keys = nullptr);
  // As Open, where the caller knows what the index has: the blocks under keys[first] and behind.
  // No row sees the first `first` blocks: they are let go. REQUIRES: the index has the others.
  SequenceId OpenBehind(std::span<const PrefixKey> keys, int64_t first, const KeySalt& salt);
  // Whether the index has a block under the key.
  bool Has(const PrefixKey& key) const;
  // What Open would find now; changes nothing.
  CachedPrefix FindCached(std::span<const int32_t> tokens, const KeySalt& salt, int64_t max_cached,
                          std::vector<PrefixKey>* keys = nullptr) const;

  // The sequence's first `tokens` (whole blocks) were committed elsewhere, and no later row sees
  // them. They get no block here, and their table entries mean nothing. REQUIRES:
  // nothing is reserved.
  void Skip(SequenceId sequence, std::span<const int32_t> tokens);
  // Makes room for positions up to `length`: all or nothing. Evicts cached blocks where no free one
  // is left. REQUIRES: length <= max_blocks_per_sequence * 32.
  bool Reserve(SequenceId sequence, int64_t length);
  // The device was given the positions up to `length`. REQUIRES: computed <= length <= reserved.
  void SetComputed(SequenceId sequence, int64_t length);
  // Both at once.
  bool Extend(SequenceId sequence, int64_t length);
  // The next tokens of the sequence are final (`tokens` continues what was committed). REQUIRES:
  // computed.
  void Commit(SequenceId sequence, std::span<const int32_t> tokens);
  // Drops positions from `length` on (run-ahead, stop strings, speculation), reserved room
  // included; blocks no longer needed are released. A full committed block that `length` would cut
  // is released whole, since others may share it: then all three lengths fall to its first
  // position, and what was cut off must be computed again.
  void Truncate(SequenceId sequence, int64_t length);
  // Releases the blocks that lie wholly before `position`: no row of the sequence sees them again.
  // Their entries stay in the table and mean nothing. REQUIRES: position <= committed; the sequence
  // is not truncated to before the next block's end.
  void LetGo(SequenceId sequence, int64_t position);
  // Lets go the first block that the sequence holds, whose entry of the table becomes `entry`: it
  // says where else the block lies. REQUIRES: the block is full and committed.
  void Replace(SequenceId sequence, BlockId entry);
  // The reverse: the block that the sequence let go last is held again, whose key is `key` where
  // prefixes are shared. Returns whether that is a new block, which the caller is to fill; else the
  // index had it. REQUIRES: first_held() > 0; a block is available, or the index has it.
  bool TakeBack(SequenceId sequence, const PrefixKey& key);
  // A held block does not have the content of its key: it leaves the index.
  void Unseal(BlockId block);
  // Ends the sequence: its indexed blocks become cached, the others free. Blocks with positions
  // from `spent_from` on are spent.
  void Close(SequenceId sequence, int64_t spent_from = INT64_MAX);

  std::span<const BlockId> table(SequenceId sequence) const;
  int64_t committed(SequenceId sequence) const;
  int64_t computed(SequenceId sequence) const;
  int64_t reserved(SequenceId sequence) const;
  // Positions before this one were let go; a multiple of 32.
  int64_t first_held(SequenceId sequence) const;
  // Blocks at the table's end that no other sequence holds: Close makes at least this many
  // available.
  int32_t exclusive_blocks(SequenceId sequence) const;
  int32_t num_blocks() const;
  int32_t available_blocks() const;  // free + cached
  int32_t held_blocks() const;
  // Entries of tables beyond the first that hold a block: what sharing has saved.
  int64_t repeated_blocks() const;
  const BlockBookStats& stats() const;
  // Blocks evicted since the caller last cleared the list, in that order, if the options ask for
  // it.
  std::vector<EvictedBlock>& evicted();
  // FB_CHECKs the invariants; for tests and idle moments.
  void CheckInvariants() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace forebay::kv
