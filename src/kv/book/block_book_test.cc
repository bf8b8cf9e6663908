#include "kv/book/block_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/rng.h"

namespace forebay::kv {
namespace {

using Tokens = std::vector<int32_t>;

Tokens Iota(int64_t n, int32_t first = 0) {
  Tokens tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Reserves, computes and commits the tokens of `sequence` up to `tokens.size()`.
void Fill(BlockBook& book, SequenceId sequence, const Tokens& tokens) {
  ASSERT_TRUE(book.Reserve(sequence, tokens.size()));
  book.SetComputed(sequence, tokens.size());
  book.Commit(sequence, std::span(tokens).subspan(book.committed(sequence)));
  book.CheckInvariants();
}

SequenceId OpenAndFill(BlockBook& book, const Tokens& tokens, uint64_t salt = 0) {
  const SequenceId sequence = book.Open(tokens, salt, tokens.size());
  Fill(book, sequence, tokens);
  return sequence;
}

TEST(BlockBookTest, SharesFullCommittedBlocksAndLeavesATokenToCompute) {
  BlockBook book({.num_blocks = 8, .max_sequences = 4, .max_blocks_per_sequence = 4});
  const Tokens tokens = Iota(96);
  const SequenceId a = OpenAndFill(book, tokens);
  EXPECT_EQ(book.FindCached(tokens, 0, 96).tokens, 64);
  EXPECT_EQ(book.FindCached(tokens, 0, 63).tokens, 32);
  EXPECT_EQ(book.FindCached(tokens, 1, 96).tokens, 0) << "another salt";
  const Tokens longer = Iota(97);
  EXPECT_EQ(book.FindCached(longer, 0, 97).tokens, 96);
  EXPECT_EQ(book.FindCached(longer, 0, 97).held_tokens, 96);

  const SequenceId b = book.Open(longer, 0, 97);
  EXPECT_EQ(book.committed(b), 96);
  EXPECT_EQ(book.computed(b), 96);
  EXPECT_EQ(book.reserved(b), 96);
  EXPECT_TRUE(std::ranges::equal(book.table(a), book.table(b)));
  EXPECT_EQ(book.held_blocks(), 3);
  EXPECT_EQ(book.repeated_blocks(), 3);
  EXPECT_EQ(book.exclusive_blocks(a), 0);
  EXPECT_EQ(book.stats().prefix_blocks_hit, 3);
  Fill(book, b, longer);
  EXPECT_EQ(book.exclusive_blocks(b), 1);
  book.Close(a);
  EXPECT_EQ(book.repeated_blocks(), 0);
  book.Close(b);
  book.CheckInvariants();
  EXPECT_EQ(book.available_blocks(), 8);
  EXPECT_EQ(book.FindCached(longer, 0, 97).held_tokens, 0);
  EXPECT_EQ(book.FindCached(longer, 0, 97).tokens, 96);
}

TEST(BlockBookTest, NobodyFindsWhatIsUnsealed) {
  BlockBook book({.num_blocks = 8, .max_sequences = 4, .max_blocks_per_sequence = 4});
  const Tokens tokens = Iota(97);
  const SequenceId a = OpenAndFill(book, tokens);
  book.Unseal(book.table(a)[1]);
  EXPECT_EQ(book.FindCached(tokens, 0, 97).tokens, 32);
  book.Close(a);
  book.CheckInvariants();
  EXPECT_EQ(book.FindCached(tokens, 0, 97).tokens, 32);
}

TEST(BlockBookTest, WithoutSharingNothingIsCached) {
  BlockBook book(
      {.num_blocks = 8, .max_sequences = 4, .max_blocks_per_sequence = 4, .prefix_sharing = false});
  const SequenceId a = OpenAndFill(book, Iota(96));
  EXPECT_EQ(book.FindCached(Iota(96), 0, 96).tokens, 0);
  book.Truncate(a, 40);
  book.CheckInvariants();
  book.Close(a);
  book.CheckInvariants();
  EXPECT_EQ(book.FindCached(Iota(96), 0, 96).tokens, 0);
}

TEST(BlockBookTest, ReserveIsAllOrNothing) {
  BlockBook book({.num_blocks = 3, .max_sequences = 2, .max_blocks_per_sequence = 4});
  const SequenceId a = book.Open(Iota(10), 0, 10);
  EXPECT_TRUE(book.Reserve(a, 33));
  EXPECT_EQ(book.table(a).size(), 2u);
  EXPECT_TRUE(book.Reserve(a, 64));
  EXPECT_EQ(book.table(a).size(), 2u);
  const SequenceId b = book.Open(Iota(10), 0, 10);
  EXPECT_FALSE(book.Reserve(b, 33));
  EXPECT_TRUE(book.table(b).empty());
  EXPECT_EQ(book.reserved(b), 0);
  EXPECT_TRUE(book.Reserve(b, 32));
  EXPECT_EQ(book.available_blocks(), 0);
  EXPECT_EQ(book.stats().held_peak, 3);
  book.CheckInvariants();
}

TEST(BlockBookTest, EvictsTheLeastRecentlyUsedPrefixFromItsEnd) {
  BlockBook book({.num_blocks = 8, .max_sequences = 3, .max_blocks_per_sequence = 8});
  const Tokens old = Iota(129), young = Iota(129, 1000);
  book.Close(OpenAndFill(book, Tokens(old.begin(), old.end() - 1)));
  book.Close(OpenAndFill(book, Tokens(young.begin(), young.end() - 1)));
  const SequenceId taker = book.Open(Iota(1, 5000), 0, 0);
  for (int64_t blocks = 1; blocks <= 7; ++blocks) {
    ASSERT_TRUE(book.Reserve(taker, blocks * 32));
    book.CheckInvariants();
    EXPECT_EQ(book.FindCached(old, 0, 129).tokens, std::max<int64_t>(0, 4 - blocks) * 32);
    EXPECT_EQ(book.FindCached(young, 0, 129).tokens, std::min<int64_t>(4, 8 - blocks) * 32);
  }
  EXPECT_EQ(book.stats().evictions, 7);
}

// A job whose answers nobody asks for touches what it holds at once and its prompts, and keeps the
// prompts.
TEST(BlockBookTest, AnswersGiveTheirBlocksToTheNext) {
  BlockBook book({.num_blocks = 100, .max_sequences = 2, .max_blocks_per_sequence = 8});
  BlockId highest = 0;
  for (int32_t i = 0; i < 10; ++i) {
    const SequenceId sequence = OpenAndFill(book, Iota(160, 1000 * i));
    highest = std::max(highest, *std::ranges::max_element(book.table(sequence)));
    book.Close(sequence, 40);  // a prompt of 40 tokens: a block, and part of the next
    book.CheckInvariants();
  }
  EXPECT_EQ(highest, 10 + 4 - 1);
  for (int32_t i = 0; i < 10; ++i)
    EXPECT_EQ(book.FindCached(Iota(161, 1000 * i), 0, 161).tokens, i == 9 ? 160 : 32) << i;
  EXPECT_EQ(book.available_blocks(), 100);
}

TEST(BlockBookTest, OnceAnAnswerWasAskedForAnswersAreKept) {
  BlockBook book({.num_blocks = 100, .max_sequences = 2, .max_blocks_per_sequence = 8});
  book.Close(OpenAndFill(book, Iota(160)), 40);
  const SequenceId next_turn = OpenAndFill(book, Iota(200));  // the answer is part of a prompt
  EXPECT_EQ(book.stats().prefix_blocks_hit, 5);
  book.Close(next_turn, 190);
  for (int32_t i = 1; i < 4; ++i) book.Close(OpenAndFill(book, Iota(160, 1000 * i)), 40);
  for (int32_t i = 1; i < 4; ++i)
    EXPECT_EQ(book.FindCached(Iota(161, 1000 * i), 0, 161).tokens, 160) << i;
  EXPECT_EQ(book.FindCached(Iota(200), 0, 200).tokens, 192);
  EXPECT_EQ(book.stats().evictions, 0);
}

TEST(BlockBookTest, AnEqualBlockStaysItsOwnersAndReplacesAnEvictedTwin) {
  BlockBook book({.num_blocks = 4, .max_sequences = 3, .max_blocks_per_sequence = 4});
  const Tokens tokens = Iota(33);
  const Tokens block(tokens.begin(), tokens.end() - 1);
  const SequenceId a = book.Open(block, 0, 32), b = book.Open(block, 0, 32);
  Fill(book, a, block);
  const BlockId indexed = book.table(a)[0];
  Fill(book, b, block);
  EXPECT_NE(book.table(b)[0], indexed);
  book.Close(a);
  const SequenceId taker = book.Open(Iota(1, 500), 0, 0);
  ASSERT_TRUE(book.Reserve(taker, 96));  // evicts a's block
  EXPECT_EQ(book.FindCached(tokens, 0, 33).tokens, 0);
  book.Close(b);
  book.CheckInvariants();
  EXPECT_EQ(book.FindCached(tokens, 0, 33).tokens, 32);
}

TEST(BlockBookTest, ADuplicateThatIsFreedKeepsItsTwinYoungerThanTheChildren) {
  BlockBook book({.num_blocks = 5, .max_sequences = 3, .max_blocks_per_sequence = 5});
  const Tokens parent = Iota(32), both = Iota(64);
  const SequenceId a = book.Open(parent, 0, 32), b = book.Open(parent, 0, 32);
  Fill(book, a, parent);
  Fill(book, b, both);
  book.Close(a);
  book.Close(b);
  const SequenceId taker = book.Open(Iota(1, 500), 0, 0);
  ASSERT_TRUE(book.Reserve(taker, 128));  // 3 free ones, then the child
  EXPECT_EQ(book.FindCached(both, 0, 64).tokens, 32);
}

TEST(BlockBookTest, TruncateKeepsAPartialBlockAndItsTokens) {
  BlockBook book({.num_blocks = 4, .max_sequences = 2, .max_blocks_per_sequence = 4});
  const Tokens tokens = Iota(65);
  const SequenceId a = OpenAndFill(book, Iota(50));
  ASSERT_TRUE(book.Reserve(a, 100));
  book.SetComputed(a, 70);
  book.Truncate(a, 40);
  book.CheckInvariants();
  EXPECT_EQ(book.committed(a), 40);
  EXPECT_EQ(book.computed(a), 40);
  EXPECT_EQ(book.table(a).size(), 2u);
  Fill(book, a, Iota(64));
  EXPECT_EQ(book.FindCached(tokens, 0, 65).tokens, 64)
      << "the tokens before the cut count in the key";
}

TEST(BlockBookTest, TruncateInsideASharedBlockGivesItUp) {
  BlockBook book({.num_blocks = 6, .max_sequences = 2, .max_blocks_per_sequence = 4});
  const Tokens tokens = Iota(97);
  const SequenceId a = OpenAndFill(book, Iota(96));
  const SequenceId b = OpenAndFill(book, tokens);
  const BlockId shared = book.table(a)[1];
  book.Truncate(b, 40);
  book.CheckInvariants();
  EXPECT_EQ(book.committed(b), 32);
  EXPECT_EQ(book.reserved(b), 32);
  Tokens other = Iota(64);
  other[41] = -1;
  Fill(book, b, other);
  EXPECT_EQ(book.table(a)[1], shared);
  EXPECT_NE(book.table(b)[1], shared);
  EXPECT_EQ(book.FindCached(tokens, 0, 97).tokens, 96);
  other.push_back(0);
  EXPECT_EQ(book.FindCached(other, 0, 65).tokens, 64);
  book.Truncate(b, 0);
  Fill(book, b, Iota(32, 7));
  book.Close(b);
  book.Close(a);
  book.CheckInvariants();
}

// The same book with maps, lists of tokens as keys and time stamps, block ids taken from the real
// one.
class Model {
 public:
  using Prefix = std::pair<uint64_t, Tokens>;
  explicit Model(int32_t num_blocks) : blocks_(num_blocks) {}

  int64_t Cached(const Tokens& tokens, uint64_t salt, int64_t max_cached) const {
    int64_t cached = 0;
    const int64_t limit = std::min<int64_t>(max_cached, tokens.size() - 1);
    while (cached + 32 <= limit &&
           index_.contains({salt, Tokens(tokens.begin(), tokens.begin() + cached + 32)}))
      cached += 32;
    return cached;
  }
  void Hold(BlockId id) {
    ModelBlock& block = blocks_[id];
    if (block.count++ == 0) answers_return_ |= std::exchange(block.spent, false);
  }
  void TakeFresh(BlockId id) {
    ModelBlock& block = blocks_[id];
    ASSERT_EQ(block.count, 0);
    for (BlockId other = 0; other < static_cast<BlockId>(blocks_.size()); ++other) {
      if (blocks_[other].count > 0) continue;
      ASSERT_LE(TurnOf(id), TurnOf(other)) << "took block " << id << " before " << other;
      if (IsCached(id) && TurnOf(other) == TurnOf(id)) {
        ASSERT_GE(blocks_[other].released, block.released) << "evicted out of order";
      }
    }
    if (IsCached(id)) index_.erase(*block.content);
    block = {.count = 1, .touched = true};
  }
  void Seal(BlockId id, Prefix prefix) {
    blocks_[id].content = prefix;
    index_.emplace(std::move(prefix), id);
  }
  void Release(BlockId id, bool spent = false) {
    ModelBlock& block = blocks_[id];
    if (--block.count > 0 || !block.content) return;
    const bool first = index_.emplace(*block.content, id).second || index_[*block.content] == id;
    ModelBlock& indexed = blocks_[index_[*block.content]];
    if (indexed.count == 0) indexed.spent = (first || indexed.spent) && spent && !answers_return_;
    indexed.released = ++clock_;
  }
  const std::optional<Prefix>& content(BlockId id) const { return blocks_[id].content; }
  bool Has(const Prefix& prefix) const { return index_.contains(prefix); }
  int32_t available() const {
    return std::ranges::count_if(blocks_, [](const ModelBlock& block) { return block.count == 0; });
  }

 private:
  struct ModelBlock {
    int32_t count = 0;
    std::optional<Prefix> content;
    int64_t released = 0;
    bool spent = false, touched = false;
  };
  // Blocks that nobody holds are taken in this order.
  int TurnOf(BlockId id) const {
    const ModelBlock& block = blocks_[id];
    if (!IsCached(id)) return block.touched ? 0 : 2;
    return block.spent && !std::ranges::all_of(blocks_, &ModelBlock::touched) ? 1 : 3;
  }
  bool IsCached(BlockId id) const {
    const ModelBlock& block = blocks_[id];
    return block.count == 0 && block.content && index_.contains(*block.content) &&
           index_.at(*block.content) == id;
  }
  std::vector<ModelBlock> blocks_;
  std::map<Prefix, BlockId> index_;
  int64_t clock_ = 0;
  bool answers_return_ = false;
};

struct RandomRun {
  struct Live {
    SequenceId id;
    uint64_t salt;
    Tokens tokens;      // committed ones first, then what is to come
    int64_t first = 0;  // blocks that were let go
  };
  static constexpr int kMaxBlocks = 6;

  RandomRun(uint64_t seed, int32_t num_blocks)
      : rng(seed),
        branches(seed % 3 == 2 ? 50 : 3),
        book({.num_blocks = num_blocks, .max_sequences = 5, .max_blocks_per_sequence = kMaxBlocks}),
        model(num_blocks) {}

  // Sequences that branch at block borders, so that prefixes of every length are shared.
  Tokens RandomTokens() {
    Tokens tokens;
    for (int i = 0; i < kMaxBlocks; ++i) {
      const auto branch = static_cast<int32_t>(rng.Below(4) == 0 ? rng.Below(branches) : 0);
      for (int32_t j = 0; j < 32; ++j) tokens.push_back(branch * 32 + j);
    }
    tokens.resize(1 + rng.Below(tokens.size()));
    return tokens;
  }

  void Open() {
    if (live.size() == 5) return;
    Live seq{.salt = rng.Below(2), .tokens = RandomTokens()};
    const int64_t max_cached = rng.Below(2) ? seq.tokens.size() : rng.Below(seq.tokens.size() + 1);
    const int64_t expected = model.Cached(seq.tokens, seq.salt, max_cached);
    ASSERT_EQ(book.FindCached(seq.tokens, seq.salt, max_cached).tokens, expected);
    seq.id = book.Open(seq.tokens, seq.salt, max_cached);
    ASSERT_EQ(book.committed(seq.id), expected);
    int64_t end = 0;
    for (const BlockId id : book.table(seq.id)) {
      end += 32;
      ASSERT_EQ(*model.content(id),
                Model::Prefix(seq.salt, Tokens(seq.tokens.begin(), seq.tokens.begin() + end)));
      model.Hold(id);
    }
    if (expected == 0 && rng.Below(3) == 0) {
      seq.first = static_cast<int64_t>(rng.Below(seq.tokens.size() / 32 + 1));
      book.Skip(seq.id, std::span(seq.tokens).first(static_cast<size_t>(seq.first * 32)));
      ASSERT_EQ(book.first_held(seq.id), seq.first * 32);
    }
    live.push_back(std::move(seq));
  }

  void Step(Live& seq) {
    const int64_t committed = book.committed(seq.id), computed = book.computed(seq.id);
    const int64_t length = std::min<int64_t>(computed + rng.Below(70), kMaxBlocks * 32);
    const size_t held = book.table(seq.id).size();
    const int64_t need =
        (std::max(length, book.reserved(seq.id)) + 31) / 32 - static_cast<int64_t>(held);
    const bool fits = book.Reserve(seq.id, length);
    ASSERT_EQ(fits, need <= model.available());
    ASSERT_EQ(std::ssize(book.table(seq.id)), static_cast<int64_t>(held) + (fits ? need : 0));
    for (const BlockId id : book.table(seq.id).subspan(held)) model.TakeFresh(id);
    if (fits) book.SetComputed(seq.id, length);
    const int64_t upto = committed + rng.Below(book.computed(seq.id) - committed + 1);
    while (static_cast<int64_t>(seq.tokens.size()) < upto) seq.tokens.push_back(rng.Below(2));
    book.Commit(seq.id, std::span(seq.tokens).subspan(committed, upto - committed));
    for (int64_t i = committed / 32; i < upto / 32; ++i) {
      model.Seal(book.table(seq.id)[i],
                 {seq.salt, Tokens(seq.tokens.begin(), seq.tokens.begin() + (i + 1) * 32)});
    }
  }

  void Truncate(Live& seq) {
    int64_t length = rng.Below(book.reserved(seq.id) + 10);
    if (seq.first > 0) length = std::max(length, (seq.first + 1) * 32);
    const int64_t committed = book.committed(seq.id);
    const std::vector<BlockId> before(book.table(seq.id).begin(), book.table(seq.id).end());
    book.Truncate(seq.id, length);
    const std::span<const BlockId> after = book.table(seq.id);
    for (size_t i = before.size(); i > after.size(); --i) model.Release(before[i - 1]);
    const int64_t kept = book.committed(seq.id);
    ASSERT_EQ(kept, length >= committed            ? committed
                    : length / 32 < committed / 32 ? length / 32 * 32
                                                   : length);
    if (kept < committed) {
      seq.tokens.resize(kept);
      while (seq.tokens.size() < 40) seq.tokens.push_back(rng.Below(2));
    }
  }

  void LetGo(Live& seq) {
    const int64_t position = rng.Below(book.committed(seq.id) + 1);
    book.LetGo(seq.id, position);
    for (int64_t i = position / 32; i-- > seq.first;) model.Release(book.table(seq.id)[i]);
    seq.first = std::max(seq.first, position / 32);
    ASSERT_EQ(book.first_held(seq.id), seq.first * 32);
  }

  // What was let go last is held again.
  void TakeBack(Live& seq) {
    if (seq.first == 0 || model.available() == 0) return;
    std::vector<PrefixKey> keys;
    ExtendKeys(seq.tokens, seq.salt, seq.first, &keys);
    const Model::Prefix content(seq.salt,
                                Tokens(seq.tokens.begin(), seq.tokens.begin() + seq.first * 32));
    const bool is_there = model.Has(content);
    ASSERT_EQ(book.TakeBack(seq.id, keys.back()), !is_there);
    const BlockId id = book.table(seq.id)[static_cast<size_t>(--seq.first)];
    if (is_there) {
      ASSERT_EQ(*model.content(id), content);
      model.Hold(id);
    } else {
      model.TakeFresh(id);
      model.Seal(id, content);
    }
    ASSERT_EQ(book.first_held(seq.id), seq.first * 32);
    ++taken_back[is_there];
  }

  void Close(size_t i) {
    const std::vector<BlockId> held(book.table(live[i].id).begin(), book.table(live[i].id).end());
    const int64_t spent_from = rng.Below(2) ? INT64_MAX : rng.Below(100);
    book.Close(live[i].id, spent_from);
    for (int64_t j = held.size(); j > live[i].first; --j)
      model.Release(held[j - 1], j > spent_from / 32);
    live.erase(live.begin() + static_cast<int64_t>(i));
  }

  base::Rng rng;
  uint64_t branches;
  BlockBook book;
  Model model;
  std::vector<Live> live;
  std::array<int64_t, 2> taken_back{};  // as new blocks, and as those that the index had
};

TEST(BlockBookTest, RandomOperationsAgreeWithTheModel) {
  int64_t hits = 0, evictions = 0, filled = 0, found = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    RandomRun run(seed, seed % 4 == 3 ? 40 : 4 + static_cast<int32_t>(seed));
    for (int op = 0; op < 3000; ++op) {
      const size_t pick = run.live.empty() ? 0 : run.rng.Below(run.live.size());
      const uint64_t what = run.rng.Below(12);
      if (run.live.empty() || what < 3) {
        run.Open();
      } else if (what < 8) {
        run.Step(run.live[pick]);
      } else if (what == 8) {
        run.Truncate(run.live[pick]);
      } else if (what == 9) {
        run.LetGo(run.live[pick]);
      } else if (what == 10) {
        run.TakeBack(run.live[pick]);
      } else {
        run.Close(pick);
      }
      run.book.CheckInvariants();
      ASSERT_EQ(run.book.available_blocks(), run.model.available());
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " operation " << op;
    }
    hits += run.book.stats().prefix_blocks_hit;
    evictions += run.book.stats().evictions;
    filled += run.taken_back[0];
    found += run.taken_back[1];
  }
  EXPECT_GT(hits, 1000);
  EXPECT_GT(evictions, 1000);
  EXPECT_GT(filled, 100);
  EXPECT_GT(found, 100);
}

}  // namespace
}  // namespace forebay::kv
