#include "kv/book/block_book.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "kv/book/lru_list.h"
#include "kv/book/prefix_index.h"

namespace forebay::kv {
namespace {

int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

struct Block {
  PrefixKey key;         // the key of a sealed block
  int32_t count = 0;     // sequences that hold it
  bool sealed = false;   // full, its tokens committed, its key known
  bool spent = false;    // cached: nobody is expected to ask for its content again
  int64_t released = 0;  // cached: when
};

struct Sequence {
  bool live = false;
  int32_t num_blocks = 0;  // entries of the table; those before `first` were let go
  int32_t first = 0;
  int64_t committed = 0, computed = 0, reserved = 0;
  KeySalt salt;
  PrefixKey chain;  // the key of its last full committed block, or the root
};

void SetComputedOf(SequenceId sequence, Sequence& seq, int64_t length) {
  FB_CHECK(seq.computed <= length && length <= seq.reserved,
           "sequence {}: computed {} to {}, reserved {}", sequence, seq.computed, length,
           seq.reserved);
  seq.computed = length;
}

// The tokens after a sequence's last full committed block.
using Tail = std::array<int32_t, kBlockTokens>;

}  // namespace

struct BlockBook::State {
  BlockBookOptions options;
  BlockBookStats stats;
  std::vector<Block> blocks;
  std::vector<BlockId> free;    // a stack of blocks that were in use before
  BlockId untouched = 0;        // blocks from this one on were never taken
  LruList cached, spent;        // `spent`: those cached blocks that nobody is expected to ask for
  bool answers_return = false;  // a spent block was asked for: from then on none is spent
  int64_t clock = 0;            // blocks that were cached so far
  int64_t repeated = 0;         // counts of blocks beyond their first
  PrefixIndex index;
  std::vector<Sequence> sequences;
  std::vector<Tail> tails;  // of sequences: [committed % 32] tokens; empty: nothing is shared
  std::vector<SequenceId> free_ids;
  std::vector<BlockId> tables;  // [max_sequences, max_blocks_per_sequence]
  std::vector<EvictedBlock> evicted;

  explicit State(const BlockBookOptions& o)
      : options(o),
        blocks(o.num_blocks),
        cached(o.prefix_sharing ? o.num_blocks : 0),
        spent(o.prefix_sharing ? o.num_blocks : 0),
        index(o.prefix_sharing ? o.num_blocks : 0),
        sequences(o.max_sequences),
        tails(o.prefix_sharing ? o.max_sequences : 0),
        tables(static_cast<size_t>(o.max_sequences) * o.max_blocks_per_sequence, -1) {
    free.reserve(o.num_blocks);
    for (SequenceId sequence = o.max_sequences - 1; sequence >= 0; --sequence)
      free_ids.push_back(sequence);
  }

  int32_t available() const {
    return static_cast<int32_t>(free.size()) + options.num_blocks - untouched + spent.size() +
           cached.size();
  }
  LruList& ListOf(const Block& block) { return block.spent ? spent : cached; }
  BlockId* Table(SequenceId sequence) {
    return tables.data() + static_cast<size_t>(sequence) * options.max_blocks_per_sequence;
  }
  Sequence& Live(SequenceId sequence) {
    FB_CHECK(sequence >= 0 && sequence < options.max_sequences && sequences[sequence].live,
             "sequence {} of {} is not open", sequence, options.max_sequences);
    return sequences[sequence];
  }

  // A block for new content. As long as there is memory that was never touched, what nobody is
  // expected to miss comes before it: on some virtual machines a first touch costs more than all
  // that is written. REQUIRES: available() > 0.
  BlockId Take() {
    BlockId id;
    if (!free.empty()) {
      id = free.back();
      free.pop_back();
    } else if (spent.size() > 0 && (untouched < options.num_blocks || SpentIsOldest())) {
      id = Evict(spent);
    } else if (untouched < options.num_blocks) {
      id = untouched++;
    } else {
      id = Evict(cached);
    }
    blocks[id] = {.count = 1};
    return id;
  }

  // Whether no other cached block was let go before a spent one. REQUIRES: there is a spent one.
  bool SpentIsOldest() const {
    return cached.size() == 0 || blocks[spent.oldest()].released < blocks[cached.oldest()].released;
  }

  // One more sequence holds an indexed block.
  void Share(BlockId id) {
    Block& block = blocks[id];
    if (block.count++ == 0) {
      ListOf(block).Remove(id);
      answers_return |= std::exchange(block.spent, false);
    } else {
      ++repeated;
    }
  }

  // The block becomes the newest of the spent ones, or of the others.
  void Cache(BlockId id, bool is_spent) {
    blocks[id].spent = is_spent;
    blocks[id].released = ++clock;
    ListOf(blocks[id]).AddNewest(id);
  }

  // The least recently used block of the list leaves it and the index.
  BlockId Evict(LruList& list) {
    const BlockId id = list.oldest();
    list.Remove(id);
    index.Erase(blocks[id].key);
    ++stats.evictions;
    if (options.notes_evictions) evicted.push_back({blocks[id].key, id});
    return id;
  }

  // `is_spent`: the sequence that lets the block go expects nobody to ask for its content.
  void Release(BlockId id, bool is_spent = false) {
    Block& block = blocks[id];
    if (--block.count > 0) {
      --repeated;
      return;
    }
    const BlockId indexed = block.sealed ? index.Find(block.key) : -1;
    if (block.sealed && indexed < 0) index.Insert(block.key, id);  // its twin was evicted
    if (block.sealed && (indexed < 0 || indexed == id)) {
      Cache(id, is_spent);
      return;
    }
    free.push_back(id);
    // A twin stands in for this block: it must outlive the children released just before.
    if (indexed >= 0 && blocks[indexed].count == 0) {
      ListOf(blocks[indexed]).Remove(indexed);
      Cache(indexed, is_spent && blocks[indexed].spent);
    }
  }

  // The last full block of `seq` has been committed.
  void Seal(SequenceId sequence, Sequence& seq) {
    const int64_t block = seq.committed / kBlockTokens - 1;
    seq.chain = ChainKey(seq.chain, tails[sequence], seq.salt, block);
    const BlockId id = Table(sequence)[block];
    blocks[id].key = seq.chain;
    blocks[id].sealed = true;
    // Another sequence may have computed the same beside it: then that block stands in the index,
    // and this one is its twin.
    if (index.Find(seq.chain) < 0) index.Insert(seq.chain, id);
  }

  // Calls visit(block, key) for each indexed block of the prefix, in order.
  template <typename Visit>
  void WalkCached(std::span<const int32_t> tokens, const KeySalt& salt, int64_t max_cached,
                  std::vector<PrefixKey>* keys, Visit visit) const {
    if (!options.prefix_sharing) return;
    // One token at least is left to compute: its logits are wanted.
    const int64_t limit = std::min<int64_t>(
        std::min(max_cached, static_cast<int64_t>(tokens.size()) - 1) / kBlockTokens,
        options.max_blocks_per_sequence);
    PrefixKey key = RootKey(salt);
    for (int64_t i = 0; i < limit; ++i) {
      const bool known = keys != nullptr && i < static_cast<int64_t>(keys->size());
      key = known ? (*keys)[i]
                  : ChainKey(key, tokens.subspan(i * kBlockTokens, kBlockTokens), salt, i);
      // Keys are hashed as far as blocks are found, and kept for the next look.
      if (keys != nullptr && !known) keys->push_back(key);
      const BlockId id = index.Find(key);
      if (id < 0) return;
      visit(id, key);
    }
  }

  SequenceId NewSequence(const KeySalt& salt) {
    FB_CHECK(!free_ids.empty(), "all {} sequences are live", options.max_sequences);
    const SequenceId sequence = free_ids.back();
    free_ids.pop_back();
    sequences[sequence] = Sequence{.live = true, .salt = salt, .chain = RootKey(salt)};
    return sequence;
  }

  bool Reserve(SequenceId sequence, Sequence& seq, int64_t length) {
    const int64_t wanted = BlocksFor(length);
    if (wanted > seq.num_blocks) {
      FB_CHECK(wanted <= options.max_blocks_per_sequence,
               "sequence {}: {} positions need {} blocks, at most {}", sequence, length, wanted,
               options.max_blocks_per_sequence);
      // All or nothing.
      if (wanted - seq.num_blocks > available()) return false;
      BlockId* table = Table(sequence);
      while (seq.num_blocks < wanted) table[seq.num_blocks++] = Take();
      NoteHeld();
    }
    seq.reserved = std::max(seq.reserved, length);
    return true;
  }

  void NoteHeld() { stats.held_peak = std::max(stats.held_peak, options.num_blocks - available()); }
};

BlockBook::BlockBook(const BlockBookOptions& options) {
  FB_CHECK(
      options.num_blocks >= 0 && options.max_sequences >= 0 && options.max_blocks_per_sequence >= 0,
      "{} blocks, {} sequences of up to {} blocks", options.num_blocks, options.max_sequences,
      options.max_blocks_per_sequence);
  state_ = std::make_unique<State>(options);
}

BlockBook::BlockBook(BlockBook&&) noexcept = default;
BlockBook::~BlockBook() = default;

SequenceId BlockBook::Open(std::span<const int32_t> tokens, const KeySalt& salt, int64_t max_cached,
                           std::vector<PrefixKey>* keys) {
  State& s = *state_;
  const SequenceId sequence = s.NewSequence(salt);
  Sequence& seq = s.sequences[sequence];
  BlockId* table = s.Table(sequence);
  s.WalkCached(tokens, salt, max_cached, keys, [&](BlockId id, const PrefixKey& key) {
    s.Share(id);
    table[seq.num_blocks++] = id;
    seq.chain = key;
  });
  seq.committed = seq.computed = seq.reserved = static_cast<int64_t>(seq.num_blocks) * kBlockTokens;
  s.stats.prefix_blocks_hit += seq.num_blocks;
  s.NoteHeld();
  return sequence;
}

SequenceId BlockBook::OpenBehind(std::span<const PrefixKey> keys, int64_t first,
                                 const KeySalt& salt) {
  State& s = *state_;
  const SequenceId sequence = s.NewSequence(salt);
  Sequence& seq = s.sequences[sequence];
  BlockId* table = s.Table(sequence);
  for (const PrefixKey& key : keys) {
    BlockId& entry = table[seq.num_blocks++];
    entry = s.index.Find(key);
    if (seq.num_blocks <= first) continue;
    FB_CHECK(entry >= 0, "sequence {}: block {} is not in the index", sequence, seq.num_blocks - 1);
    s.Share(entry);
    ++s.stats.prefix_blocks_hit;
  }
  if (!keys.empty()) seq.chain = keys.back();
  seq.first = static_cast<int32_t>(first);
  seq.committed = seq.computed = seq.reserved = std::ssize(keys) * int64_t{kBlockTokens};
  s.NoteHeld();
  return sequence;
}

bool BlockBook::Has(const PrefixKey& key) const { return state_->index.Find(key) >= 0; }

CachedPrefix BlockBook::FindCached(std::span<const int32_t> tokens, const KeySalt& salt,
                                   int64_t max_cached, std::vector<PrefixKey>* keys) const {
  CachedPrefix found;
  state_->WalkCached(tokens, salt, max_cached, keys, [&](BlockId id, const PrefixKey&) {
    found.tokens += kBlockTokens;
    if (state_->blocks[id].count > 0) found.held_tokens += kBlockTokens;
  });
  return found;
}

void BlockBook::Skip(SequenceId sequence, std::span<const int32_t> tokens) {
  State& s = *state_;
  Sequence& seq = s.Live(sequence);
  FB_CHECK(seq.reserved == 0 && tokens.size() % kBlockTokens == 0,
           "sequence {}: skips {} tokens, reserved {}", sequence, tokens.size(), seq.reserved);
  seq.committed = seq.computed = seq.reserved = static_cast<int64_t>(tokens.size());
  for (; !tokens.empty(); tokens = tokens.subspan(kBlockTokens)) {
    if (s.options.prefix_sharing)
      seq.chain = ChainKey(seq.chain, tokens.first(kBlockTokens), seq.salt, seq.num_blocks);
    // No block: what it would hold is not seen any more.
    s.Table(sequence)[seq.num_blocks++] = -1;
  }
  seq.first = seq.num_blocks;
}

bool BlockBook::Reserve(SequenceId sequence, int64_t length) {
  return state_->Reserve(sequence, state_->Live(sequence), length);
}

void BlockBook::SetComputed(SequenceId sequence, int64_t length) {
  SetComputedOf(sequence, state_->Live(sequence), length);
}

bool BlockBook::Extend(SequenceId sequence, int64_t length) {
  Sequence& seq = state_->Live(sequence);
  if (!state_->Reserve(sequence, seq, length)) return false;
  SetComputedOf(sequence, seq, length);
  return true;
}

void BlockBook::Commit(SequenceId sequence, std::span<const int32_t> tokens) {
  State& s = *state_;
  Sequence& seq = s.Live(sequence);
  FB_CHECK(seq.committed + static_cast<int64_t>(tokens.size()) <= seq.computed,
           "sequence {}: commits {} tokens after {}, computed {}", sequence, tokens.size(),
           seq.committed, seq.computed);
  if (!s.options.prefix_sharing) {
    seq.committed += static_cast<int64_t>(tokens.size());
    return;
  }
  for (const int32_t token : tokens) {
    s.tails[sequence][seq.committed++ % kBlockTokens] = token;
    if (seq.committed % kBlockTokens == 0) s.Seal(sequence, seq);
  }
}

void BlockBook::Truncate(SequenceId sequence, int64_t length) {
  State& s = *state_;
  Sequence& seq = s.Live(sequence);
  FB_CHECK(length >= 0, "sequence {}: truncated to {}", sequence, length);
  if (length >= seq.reserved) return;
  const int64_t full_blocks = seq.committed / kBlockTokens;
  if (length / kBlockTokens < full_blocks) {
    // Within a sealed block nothing can be cut off: its key stands for all of it, and others may
    // hold it.
    length -= length % kBlockTokens;
    const int64_t kept = length / kBlockTokens;
    seq.chain = kept > 0 ? s.blocks[s.Table(sequence)[kept - 1]].key : RootKey(seq.salt);
  }
  FB_CHECK(seq.first == 0 || length / kBlockTokens > seq.first,
           "sequence {}: truncated to {}, but {} blocks were let go", sequence, length, seq.first);
  while (seq.num_blocks > BlocksFor(length)) s.Release(s.Table(sequence)[--seq.num_blocks]);
  seq.reserved = length;
  seq.computed = std::min(seq.computed, length);
  seq.committed = std::min(seq.committed, length);
}

void BlockBook::LetGo(SequenceId sequence, int64_t position) {
  State& s = *state_;
  Sequence& seq = s.Live(sequence);
  FB_CHECK(position <= seq.committed, "sequence {}: lets go what lies before {}, committed {}",
           sequence, position, seq.committed);
  const auto first = static_cast<int32_t>(position / kBlockTokens);
  for (int32_t i = first; i-- > seq.first;) s.Release(s.Table(sequence)[i]);
  seq.first = std::max(seq.first, first);
}

void BlockBook::Replace(SequenceId sequence, BlockId entry) {
  const int32_t first = state_->Live(sequence).first;
  LetGo(sequence, (first + int64_t{1}) * kBlockTokens);
  state_->Table(sequence)[first] = entry;
}

bool BlockBook::TakeBack(SequenceId sequence, const PrefixKey& key) {
  State& s = *state_;
  Sequence& seq = s.Live(sequence);
  FB_CHECK(seq.first > 0, "sequence {}: no block was let go", sequence);
  const bool shared = s.options.prefix_sharing;
  BlockId& entry = s.Table(sequence)[--seq.first];
  entry = shared ? s.index.Find(key) : -1;
  const bool fresh = entry < 0;
  if (!fresh) {
    s.Share(entry);
  } else {
    FB_CHECK(s.available() > 0, "sequence {}: takes a block back, none is available", sequence);
    entry = s.Take();
    s.blocks[entry].key = key;
    // It is filled from below: full, and known by its key, from now on.
    s.blocks[entry].sealed = shared;
    if (shared) s.index.Insert(key, entry);
  }
  s.NoteHeld();
  return fresh;
}

void BlockBook::Unseal(BlockId block) {
  State& s = *state_;
  if (!std::exchange(s.blocks[block].sealed, false)) return;
  if (s.index.Find(s.blocks[block].key) == block) s.index.Erase(s.blocks[block].key);
}

void BlockBook::Close(SequenceId sequence, int64_t spent_from) {
  State& s = *state_;
  Sequence& seq = s.Live(sequence);
  // The first block that holds a position from `spent_from` on.
  const int64_t first_spent = s.answers_return ? seq.num_blocks : spent_from / kBlockTokens;
  // From the end to the front, so that the children of a prefix are evicted before it.
  while (seq.num_blocks > seq.first) {
    const int32_t last = --seq.num_blocks;
    s.Release(s.Table(sequence)[last], last >= first_spent);
  }
  seq.live = false;
  s.free_ids.push_back(sequence);
}

std::span<const BlockId> BlockBook::table(SequenceId sequence) const {
  const Sequence& seq = state_->Live(sequence);
  return {state_->Table(sequence), static_cast<size_t>(seq.num_blocks)};
}

int64_t BlockBook::committed(SequenceId sequence) const { return state_->Live(sequence).committed; }
int64_t BlockBook::computed(SequenceId sequence) const { return state_->Live(sequence).computed; }
int64_t BlockBook::reserved(SequenceId sequence) const { return state_->Live(sequence).reserved; }
int64_t BlockBook::first_held(SequenceId sequence) const {
  return state_->Live(sequence).first * int64_t{kBlockTokens};
}

int32_t BlockBook::exclusive_blocks(SequenceId sequence) const {
  const std::span<const BlockId> held = table(sequence).subspan(state_->Live(sequence).first);
  if (state_->repeated == 0) return static_cast<int32_t>(held.size());
  int32_t count = 0;
  while (count < static_cast<int32_t>(held.size()) &&
         state_->blocks[held[held.size() - 1 - count]].count == 1)
    ++count;
  return count;
}

int32_t BlockBook::num_blocks() const { return state_->options.num_blocks; }
int32_t BlockBook::available_blocks() const { return state_->available(); }
int32_t BlockBook::held_blocks() const { return num_blocks() - available_blocks(); }
int64_t BlockBook::repeated_blocks() const { return state_->repeated; }
const BlockBookStats& BlockBook::stats() const { return state_->stats; }
std::vector<EvictedBlock>& BlockBook::evicted() { return state_->evicted; }

void BlockBook::CheckInvariants() const {
  State& s = *state_;
  std::vector<int32_t> counts(s.blocks.size(), 0);
  int64_t live = 0;
  for (SequenceId sequence = 0; sequence < s.options.max_sequences; ++sequence) {
    const Sequence& seq = s.sequences[sequence];
    if (!seq.live) continue;
    ++live;
    FB_CHECK(0 <= seq.committed && seq.committed <= seq.computed && seq.computed <= seq.reserved,
             "sequence {}: committed {}, computed {}, reserved {}", sequence, seq.committed,
             seq.computed, seq.reserved);
    FB_CHECK(seq.num_blocks == BlocksFor(seq.reserved), "sequence {}: {} blocks, reserved {}",
             sequence, seq.num_blocks, seq.reserved);
    PrefixKey last = RootKey(seq.salt);
    FB_CHECK(seq.first <= seq.committed / kBlockTokens,
             "sequence {}: {} blocks let go, committed {}", sequence, seq.first, seq.committed);
    for (int32_t i = seq.first; i < seq.num_blocks; ++i) {
      const BlockId id = s.Table(sequence)[i];
      ++counts[id];
      const bool full = s.options.prefix_sharing && (i + 1) * kBlockTokens <= seq.committed;
      FB_CHECK(s.blocks[id].sealed == full, "sequence {}: block {} at {} sealed: {}", sequence, id,
               i, s.blocks[id].sealed);
      if (full) last = s.blocks[id].key;
    }
    const bool chain_held = seq.first == 0 || seq.first < seq.committed / kBlockTokens;
    FB_CHECK(!s.options.prefix_sharing || !chain_held || seq.chain == last,
             "sequence {}: wrong chain key", sequence);
  }
  FB_CHECK(live + static_cast<int64_t>(s.free_ids.size()) == s.options.max_sequences,
           "{} live, {} free ids", live, s.free_ids.size());

  enum class Where { kNowhere, kFree, kCached };
  std::vector<Where> where(s.blocks.size(), Where::kNowhere);
  for (const BlockId id : s.free) {
    FB_CHECK(where[id] == Where::kNowhere, "block {} is free twice", id);
    where[id] = Where::kFree;
  }
  for (BlockId id = s.untouched; id < s.options.num_blocks; ++id) {
    FB_CHECK(where[id] == Where::kNowhere, "block {} was let go, but never taken", id);
    where[id] = Where::kFree;
  }
  for (const LruList* list : {&s.cached, &s.spent}) {
    list->ForEach([&](BlockId id) {
      FB_CHECK(where[id] == Where::kNowhere, "block {} is cached and free", id);
      FB_CHECK(s.blocks[id].spent == (list == &s.spent), "block {}: spent {}", id,
               s.blocks[id].spent);
      where[id] = Where::kCached;
    });
  }
  int32_t indexed = 0;
  int64_t repeated = 0;
  for (BlockId id = 0; id < s.options.num_blocks; ++id) {
    const Block& block = s.blocks[id];
    FB_CHECK(block.count == counts[id], "block {}: count {}, held by {}", id, block.count,
             counts[id]);
    FB_CHECK((block.count > 0) == (where[id] == Where::kNowhere),
             "block {}: count {}, free or cached: {}", id, block.count,
             where[id] != Where::kNowhere);
    const bool in_index =
        where[id] != Where::kFree && block.sealed && s.index.Find(block.key) == id;
    FB_CHECK(in_index || (where[id] != Where::kCached && block.count <= 1),
             "block {}: count {}, not indexed", id, block.count);
    indexed += in_index;
    repeated += std::max(0, block.count - 1);
  }
  FB_CHECK(repeated == s.repeated, "{} blocks held more than once, counted {}", repeated,
           s.repeated);
  FB_CHECK(indexed == s.index.size(), "{} indexed blocks, {} index entries", indexed,
           s.index.size());
}

}  // namespace forebay::kv
