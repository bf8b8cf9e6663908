// The books of a replica's KV groups, kept in step: a sequence has the same id and the same
// lengths in each.
//
// A group whose rows see a window may have fewer blocks than the others: as many as all sequences
// hold of it at once, whatever their lengths. It never runs out, so nobody counts its blocks. Of a
// cached prefix it needs what the rows behind it see, and a sequence holds no more of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/reach.h"
#include "kv/book/block_book.h"

namespace forebay::kv {

class GroupBooks {
 public:
  // One book a reach: what a row sees. `most_blocks`: of each group, where sequences hold no more
  // of it; else the options' number counts, which at least one group has. `whole_prefixes`: what is
  // found has all its blocks, and tables name those which Open has let go.
  GroupBooks(const BlockBookOptions& options, std::span<const base::Reach> reaches,
             std::span<const int32_t> most_blocks = {}, bool whole_prefixes = false);

  // As in BlockBook, in every group. A cached prefix is cached in all groups.
  SequenceId Open(std::span<const int32_t> tokens, const KeySalt& salt, int64_t max_cached,
                  std::vector<PrefixKey>* keys);
  CachedPrefix FindCached(std::span<const int32_t> tokens, const KeySalt& salt, int64_t max_cached,
                          std::vector<PrefixKey>* keys) const;
  // Opens a sequence whose positions were all computed elsewhere: by group, from `first_held` on
  // rows still see them. Where all is seen, the first full blocks of at most `max_cached` tokens
  // are taken from the prefix index; those from committed() on are to be filled, once Extend has
  // made room for them.
  SequenceId OpenAdopted(std::span<const int32_t> tokens, const KeySalt& salt,
                         std::span<const int64_t> first_held, int64_t max_cached = 0,
                         std::vector<PrefixKey>* keys = nullptr);
  // What was adopted is there now.
  void CommitAdopted(SequenceId sequence, std::span<const int32_t> tokens);
  // REQUIRES: available_blocks() are enough.
  void Reserve(SequenceId sequence, int64_t length);
  void SetComputed(SequenceId sequence, int64_t length);
  // Both at once.
  void Extend(SequenceId sequence, int64_t length);
  void Commit(SequenceId sequence, std::span<const int32_t> tokens);
  // Lets go what the rows from committed() on do not see in the group; returns the first position
  // held.
  int64_t LetGoUnseen(int group, SequenceId sequence);
  // Rows of all groups see all positions before them: LetGoUnseen does nothing.
  bool all_seen() const { return all_seen_; }
  // As in BlockBook, of the only group.
  void Replace(SequenceId sequence, BlockId entry);
  bool TakeBack(SequenceId sequence, const PrefixKey& key);
  void Unseal(BlockId block) { books_[0].Unseal(block); }
  void Close(SequenceId sequence, int64_t spent_from = INT64_MAX);

  int num_groups() const { return static_cast<int>(books_.size()); }
  std::span<const BlockId> table(int group, SequenceId sequence) const {
    return books_[group].table(sequence);
  }
  int64_t first_held(int group, SequenceId sequence) const {
    return books_[group].first_held(sequence);
  }
  int64_t computed(SequenceId sequence) const { return books_[0].computed(sequence); }
  int64_t committed(int group, SequenceId sequence) const {
    return books_[group].committed(sequence);
  }
  // The group whose blocks are counted that comes first.
  int lead() const { return lead_; }
  int32_t num_blocks() const { return books_[lead_].num_blocks(); }  // of each that is counted
  // Blocks of the group that has least left, or holds most, of those that are counted.
  int32_t available_blocks() const;
  int32_t exclusive_blocks(SequenceId sequence) const;
  int32_t held_blocks() const { return num_blocks() - available_blocks(); }
  int32_t held_peak() const;
  // Blocks that sequences repeat, in the group that shares least.
  int64_t repeated_blocks() const;
  // What the group's book has evicted since ForgetEvicted, where the options have it noted: the
  // same in each group if rows see all.
  std::span<const EvictedBlock> evicted(int group) { return books_[group].evicted(); }
  void ForgetEvicted() {
    for (BlockBook& book : books_) book.evicted().clear();
  }
  int64_t prefix_blocks_hit() const { return books_[lead_].stats().prefix_blocks_hit; }

 private:
  // The first block of the group that the row at `position` sees.
  int64_t FirstSeen(int group, int64_t position) const {
    return reaches_[group].First(static_cast<int32_t>(position)) / kBlockTokens;
  }
  // How many of the first blocks, with these keys, make a prefix that rows behind it see whole.
  int64_t FindSeen(int group, std::span<const PrefixKey> keys) const;

  std::vector<BlockBook> books_;
  std::vector<base::Reach> reaches_;
  std::vector<bool> counted_;
  const bool all_seen_, whole_prefixes_;
  int lead_ = 0;
};

}  // namespace forebay::kv
