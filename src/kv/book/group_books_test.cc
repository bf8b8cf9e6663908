#include "kv/book/group_books.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/rng.h"

namespace forebay::kv {
namespace {

// A sequence of all tokens, in steps of 40, with what its windows do not see let go after each.
SequenceId Serve(GroupBooks& books, std::span<const int32_t> tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  const SequenceId sequence = books.Open(tokens, 0, length, nullptr);
  for (int64_t begin = books.computed(sequence), end; begin < length; begin = end) {
    end = std::min(begin + 40, length);
    books.Reserve(sequence, end);
    books.SetComputed(sequence, end);
    books.Commit(sequence, tokens.subspan(begin, end - begin));
    for (int group = 0; group < books.num_groups(); ++group) books.LetGoUnseen(group, sequence);
  }
  return sequence;
}

TEST(GroupBooks, PastChunksAreLetGo) {
  const base::Reach reaches[] = {{0, 128}, 0};
  GroupBooks books({.num_blocks = 16, .max_sequences = 2, .max_blocks_per_sequence = 10}, reaches);
  std::vector<int32_t> tokens(300);
  std::iota(tokens.begin(), tokens.end(), 0);
  SequenceId sequence = Serve(books, std::span(tokens).first(255));
  EXPECT_EQ(books.first_held(0, sequence), 128);  // the row at 255 is the chunk's last
  books.Close(sequence);
  sequence = Serve(books, std::span(tokens).first(256));
  EXPECT_EQ(books.first_held(0, sequence), 256);  // the next one begins a chunk
  EXPECT_EQ(books.first_held(1, sequence), 0);
  books.Close(sequence);
  EXPECT_EQ(books.available_blocks(), 16);
}

TEST(GroupBooks, AWindowedGroupHoldsWhatIsSeen) {
  const base::Reach windows[] = {0, 64};
  GroupBooks books({.num_blocks = 16, .max_sequences = 2, .max_blocks_per_sequence = 10}, windows);
  std::vector<int32_t> tokens(300);
  std::iota(tokens.begin(), tokens.end(), 0);
  const SequenceId sequence = Serve(books, tokens);
  EXPECT_EQ(books.first_held(0, sequence), 0);
  // The next row, at 300, sees 237 and later.
  EXPECT_EQ(books.first_held(1, sequence), 224);
  EXPECT_EQ(books.table(0, sequence).size(), 10u);
  EXPECT_EQ(books.table(1, sequence).size(), 10u);
  EXPECT_EQ(books.available_blocks(), 6);
  EXPECT_EQ(books.held_peak(), 10);
  books.Close(sequence);
  EXPECT_EQ(books.available_blocks(), 16);
}

TEST(GroupBooks, SharedIsWhatEveryGroupStillHas) {
  const base::Reach windows[] = {0, 64};
  GroupBooks books({.num_blocks = 12, .max_sequences = 2, .max_blocks_per_sequence = 10}, windows);
  std::vector<int32_t> tokens(200), other(320, 7);
  std::iota(tokens.begin(), tokens.end(), 0);
  const SequenceId first = Serve(books, tokens);
  EXPECT_EQ(books.FindCached(tokens, 0, 200, nullptr).tokens, 192);
  EXPECT_EQ(books.FindCached(tokens, 0, 200, nullptr).held_tokens,
            64);  // what the windowed group holds
  const SequenceId second =
      Serve(books, std::vector<int32_t>(tokens.begin(), tokens.begin() + 150));
  EXPECT_EQ(books.prefix_blocks_hit(), 4);
  books.Close(first);
  books.Close(second);
  // Takes all but two blocks, the least recently used of each group first.
  books.Close(Serve(books, other));
  EXPECT_LT(books.FindCached(tokens, 0, 200, nullptr).tokens, 192);
}

// A group with few blocks has what the rows behind a prefix see, and a sequence that finds it holds
// no more.
TEST(GroupBooks, AFewBlocksOfAWindowAreEnough) {
  const base::Reach reaches[] = {64, 0};
  const int32_t most[] = {6, INT32_MAX};
  std::vector<int32_t> tokens(300);
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto begin = [&](size_t length) { return std::span(tokens).first(length); };
  for (const bool whole : {false, true}) {
    GroupBooks books({.num_blocks = 40, .max_sequences = 2, .max_blocks_per_sequence = 10}, reaches,
                     most, whole);
    EXPECT_EQ(books.lead(), 1);
    EXPECT_EQ(books.num_blocks(), 40);
    SequenceId sequence = Serve(books, tokens);
    EXPECT_EQ(books.available_blocks(), 30);
    EXPECT_EQ(books.held_peak(), 10);
    EXPECT_EQ(books.exclusive_blocks(sequence), 10);
    books.Close(sequence);
    EXPECT_EQ(books.available_blocks(), 40);
    // What the rows behind the last block see is there; the window's first blocks are gone.
    const CachedPrefix found = books.FindCached(tokens, 0, 300, nullptr);
    EXPECT_EQ(found.tokens, whole ? 0 : 288);
    EXPECT_EQ(found.held_tokens, 0);
    if (whole) continue;
    std::vector<PrefixKey> keys;
    sequence = books.Open(tokens, 0, 300, &keys);
    EXPECT_EQ(books.computed(sequence), 288);
    EXPECT_EQ(books.first_held(0, sequence), 224);
    EXPECT_EQ(books.first_held(1, sequence), 0);
    EXPECT_EQ(books.prefix_blocks_hit(), 9);
    EXPECT_EQ(books.FindCached(tokens, 0, 300, &keys).held_tokens, 288);
    books.Reserve(sequence, 300);
    books.SetComputed(sequence, 300);
    books.Commit(sequence, std::span(tokens).last(12));
    books.Close(sequence);
    // Others have taken the window's blocks; a prefix is found that ends before one that is gone.
    std::vector<int32_t> other(300, 7);
    books.Close(Serve(books, other));
    books.Close(Serve(books, begin(100)));
    EXPECT_EQ(books.FindCached(tokens, 0, 300, nullptr).tokens, 96);
  }
}

// Whoever wants whole prefixes finds those whose blocks are all there, and has a table of them.
TEST(GroupBooks, WhatIsLetGoAtOnceIsNamed) {
  const base::Reach reaches[] = {0, 64};
  const int32_t most[] = {INT32_MAX, 11};
  std::vector<int32_t> tokens(300);
  std::iota(tokens.begin(), tokens.end(), 0);
  GroupBooks books({.num_blocks = 40, .max_sequences = 2, .max_blocks_per_sequence = 10}, reaches,
                   most, /*whole_prefixes=*/true);
  std::vector<BlockId> computed;
  for (const int begin : {0, 1}) {
    const SequenceId sequence = books.Open(tokens, 0, 300, nullptr);
    EXPECT_EQ(books.computed(sequence), begin * 288);
    EXPECT_EQ(books.first_held(1, sequence), begin * 224);
    for (int64_t at = books.computed(sequence); at < 300; at = books.computed(sequence)) {
      books.Reserve(sequence, std::min<int64_t>(300, at + 32));
      books.SetComputed(sequence, std::min<int64_t>(300, at + 32));
      books.Commit(sequence, std::span(tokens).subspan(at, books.computed(sequence) - at));
      books.LetGoUnseen(1, sequence);
    }
    const auto table = books.table(1, sequence).first(9);
    if (begin == 0) computed.assign(table.begin(), table.end());
    EXPECT_EQ(std::vector<BlockId>(table.begin(), table.end()), computed);
    books.Close(sequence);
  }
}

// Whatever sequences do, a group never runs out of the blocks that the memory plan gives it.
TEST(GroupBooks, WindowsNeverRunOut) {
  int64_t hits = 0, peak = 0, bounded = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    const auto below = [&](int64_t most) {
      return static_cast<int32_t>(rng.Below(static_cast<uint64_t>(most)));
    };
    const int32_t sequences = 1 + below(5), rows = 1 + below(100), seen = 1 + below(150);
    const base::Reach reach = below(3) == 0 ? base::Reach{0, seen} : base::Reach{seen};
    const base::Reach reaches[] = {{}, reach};
    const int32_t most[] = {INT32_MAX, sequences * ((seen + 31) / 32 + 2) + (rows + 31) / 32 + 1};
    GroupBooks books(
        {.num_blocks = sequences * 16, .max_sequences = sequences, .max_blocks_per_sequence = 16},
        reaches, most, below(4) == 0);
    bounded += most[1] < sequences * 16;
    struct Live {
      SequenceId id;
      std::vector<int32_t> tokens;
      int64_t in_step;
    };
    std::vector<Live> live;
    for (int step = 0; step < 120; ++step) {
      while (std::ssize(live) < sequences && below(2) == 0) {
        std::vector<int32_t> tokens(static_cast<size_t>(1 + below(512)), below(3));
        if (below(2) == 0) tokens.back() = 1000 + step;
        const SequenceId id = books.Open(tokens, 0, std::ssize(tokens) - 1, nullptr);
        hits += books.computed(id);
        live.push_back({id, std::move(tokens), 0});
      }
      int64_t left = rows;
      for (Live& each : live) {
        const int64_t at = books.computed(each.id),
                      most_rows = std::min(left, std::ssize(each.tokens) - at);
        each.in_step = most_rows == 0 || below(4) == 0 ? 0 : 1 + below(most_rows);
        if (below(2) == 0) each.in_step = std::min<int64_t>(each.in_step, 1);
        left -= each.in_step;
        books.Reserve(each.id, at + each.in_step);
        books.SetComputed(each.id, at + each.in_step);
      }
      std::erase_if(live, [&](const Live& each) {
        const int64_t at = books.computed(each.id) - each.in_step;
        books.Commit(each.id,
                     std::span(each.tokens)
                         .subspan(static_cast<size_t>(at), static_cast<size_t>(each.in_step)));
        for (int group = 0; group < 2; ++group) books.LetGoUnseen(group, each.id);
        const bool ends = books.computed(each.id) == std::ssize(each.tokens) || below(30) == 0;
        if (ends) books.Close(each.id);
        return ends;
      });
    }
    peak = std::max<int64_t>(peak, books.held_peak());
    for (const Live& each : live) books.Close(each.id);
    EXPECT_EQ(books.available_blocks(), books.num_blocks());
  }
  EXPECT_GT(hits, 10000);
  EXPECT_GT(peak, 20);
  EXPECT_GT(bounded, 100);
}

// Groups that see all give up the same blocks, the end of a prefix first.
TEST(GroupBooks, EvictionsAreNoted) {
  const base::Reach all[] = {{}, {}};
  std::vector<int32_t> tokens(100), other(250, 7);
  std::iota(tokens.begin(), tokens.end(), 0);
  for (const bool notes : {true, false}) {
    GroupBooks books({.num_blocks = 9,
                      .max_sequences = 2,
                      .max_blocks_per_sequence = 10,
                      .notes_evictions = notes},
                     all);
    const SequenceId sequence = Serve(books, tokens);
    const std::vector<BlockId> held(books.table(1, sequence).begin(),
                                    books.table(1, sequence).end());
    books.Close(sequence);
    books.Close(Serve(books, other));
    std::vector<PrefixKey> keys;
    ExtendKeys(tokens, 0, 3, &keys);
    for (int group = 0; group < 2; ++group) {
      ASSERT_EQ(books.evicted(group).size(), notes ? 2u : 0u);
      for (size_t i = 0; i < books.evicted(group).size(); ++i) {
        EXPECT_EQ(books.evicted(group)[i].key, keys[2 - i]);
        EXPECT_EQ(books.evicted(group)[i].block, held[2 - i]);
      }
    }
    books.ForgetEvicted();
    EXPECT_TRUE(books.evicted(1).empty());
  }
}

// What did not come along takes no block and is found by nobody.
TEST(GroupBooks, AnAdoptedSequenceHasWhatIsSeen) {
  const base::Reach windows[] = {0, 64}, window[] = {64};
  std::vector<int32_t> tokens(300);
  std::iota(tokens.begin(), tokens.end(), 0);
  const int64_t first_held[] = {0, 224};
  GroupBooks books({.num_blocks = 16, .max_sequences = 2, .max_blocks_per_sequence = 12}, windows);
  const SequenceId sequence = books.OpenAdopted(tokens, 0, first_held);
  books.Extend(sequence, std::ssize(tokens));
  EXPECT_EQ(books.first_held(0, sequence), 0);
  EXPECT_EQ(books.first_held(1, sequence), 224);
  EXPECT_EQ(books.table(1, sequence).size(), 10u);
  EXPECT_EQ(books.computed(sequence), 300);
  EXPECT_EQ(books.available_blocks(), 6);
  books.CommitAdopted(sequence, tokens);
  EXPECT_EQ(books.FindCached(tokens, 0, 300, nullptr).tokens, 0);
  for (int group = 0; group < 2; ++group) books.LetGoUnseen(group, sequence);
  books.Close(sequence);
  EXPECT_EQ(books.available_blocks(), 16);

  // Its blocks are children of a prefix that somebody else may compute.
  GroupBooks alone({.num_blocks = 16, .max_sequences = 2, .max_blocks_per_sequence = 12}, window);
  const SequenceId adopted = alone.OpenAdopted(tokens, 0, std::span(first_held).last(1));
  alone.Extend(adopted, std::ssize(tokens));
  EXPECT_EQ(alone.available_blocks(), 13);
  alone.CommitAdopted(adopted, tokens);
  EXPECT_EQ(alone.FindCached(tokens, 0, 300, nullptr).tokens, 0);
  const SequenceId first = alone.Open(tokens, 0, 0, nullptr);
  alone.Reserve(first, 224);
  alone.SetComputed(first, 224);
  alone.Commit(first, std::span(tokens).first(224));
  EXPECT_EQ(alone.FindCached(tokens, 0, 300, nullptr).tokens, 288);
}

}  // namespace
}  // namespace forebay::kv
