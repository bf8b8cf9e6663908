#include "kv/book/group_books.h"

#include <gtest/gtest.h>

#include <numeric>

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
  books.FillAdopted(sequence, std::ssize(tokens));
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
  alone.FillAdopted(adopted, std::ssize(tokens));
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
