#include "kv/book/tier_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>

#include "base/rng.h"

namespace forebay::kv {
namespace {

PrefixKey Key(uint64_t value) { return {value, ~value}; }
std::vector<PrefixKey> Keys(std::initializer_list<uint64_t> values) {
  std::vector<PrefixKey> keys;
  for (const uint64_t value : values) keys.push_back(Key(value));
  return keys;
}
using Fresh = std::vector<int32_t>;

TEST(TierBookTest, AFullBlockGoesDownOnce) {
  TierBook book(8);
  Fresh fresh;
  const auto first = book.Hold(Keys({1, 2}), true, &fresh);
  ASSERT_TRUE(first);
  EXPECT_EQ(fresh, (Fresh{0, 1, 2}));
  EXPECT_EQ(book.near_room(), 5);
  book.Release(*first);
  EXPECT_EQ(book.near_room(), 8);
  EXPECT_EQ(book.Find(Keys({1, 2, 3})), 2);
  fresh.clear();
  // The choice has come further: its third block and the open one are new.
  const auto again = book.Hold(Keys({1, 2, 3}), true, &fresh);
  EXPECT_EQ(fresh, (Fresh{2, 3}));
  EXPECT_EQ(again->blocks[0], first->blocks[0]);
  EXPECT_EQ(again->blocks[1], first->blocks[1]);
  // Another one begins alike.
  fresh.clear();
  const auto other = book.Hold(Keys({1, 9}), false, &fresh);
  EXPECT_EQ(fresh, Fresh{1});
  EXPECT_EQ(other->blocks[0], first->blocks[0]);
  EXPECT_EQ(book.stats().stored, 6);
  EXPECT_EQ(book.stats().found, 3);
  book.Release(*again);
  EXPECT_EQ(book.near_room(), 6);
  book.CheckInvariants();
}

TEST(TierBookTest, WhatIsNeededIsNeverEvicted) {
  TierBook book(4);
  Fresh fresh;
  const auto a = book.Hold(Keys({1, 2}), false, &fresh);
  const auto b = book.Hold(Keys({3, 4}), false, &fresh);
  EXPECT_FALSE(book.Hold(Keys({5}), false, &fresh)) << "full";
  EXPECT_EQ(fresh.size(), 4u) << "nothing was taken";
  book.Release(*a);
  // What it finds counts against what it may evict: 2 is needed, so that 1 alone can go.
  EXPECT_FALSE(book.Hold(Keys({2, 5, 6}), false, &fresh));
  const auto c = book.Hold(Keys({2, 5}), false, &fresh);
  ASSERT_TRUE(c);
  EXPECT_EQ(book.stats().evicted, 1);
  EXPECT_EQ(book.Find(Keys({1})), 0);
  EXPECT_EQ(c->blocks[0], a->blocks[1]);
  EXPECT_EQ(c->blocks[1], a->blocks[0]);
  book.Release(*b);
  book.Release(*c);
  book.CheckInvariants();
}

TEST(TierBookTest, TheEndOfAPrefixIsEvictedBeforeItsBeginning) {
  TierBook book(3);
  Fresh fresh;
  book.Release(*book.Hold(Keys({1, 2, 3}), false, &fresh));
  book.Release(*book.Hold(Keys({7}), false, &fresh));
  EXPECT_EQ(book.Find(Keys({1, 2, 3})), 2);
}

TEST(TierBookTest, WhatIsLostIsFoundByNobodyAndWrittenAnew) {
  TierBook book(3);
  Fresh fresh;
  book.Keep(std::vector{std::pair<BlockId, PrefixKey>{2, Key(9)}});
  EXPECT_EQ(book.Find(Keys({9})), 1);
  const auto needed = book.Hold(Keys({1}), true, &fresh);
  ASSERT_TRUE(needed);
  for (const BlockId block : {2, needed->blocks[0], needed->blocks[1], 2}) {
    book.Lose(block);
    book.CheckInvariants();
  }
  EXPECT_EQ(book.Find(Keys({9})), 0);
  EXPECT_EQ(book.Find(Keys({1})), 0);
  EXPECT_EQ(book.near_room(), 1);
  fresh.clear();
  const auto anew = book.Hold(Keys({1}), false, &fresh);
  ASSERT_TRUE(anew);
  EXPECT_EQ(fresh.size(), 1u);
  book.Release(*needed);
  book.Release(*anew);
  book.CheckInvariants();
  EXPECT_EQ(book.Find(Keys({1})), 1);
  // What is free already stays so.
  book.Lose(needed->blocks[1]);
  book.CheckInvariants();
}

TEST(TierBookTest, ATierWithoutBlocksHoldsNothing) {
  TierBook book(0);
  Fresh fresh;
  EXPECT_FALSE(book.Hold(Keys({1}), false, &fresh));
  EXPECT_FALSE(book.Hold({}, true, &fresh));
  book.CheckInvariants();
}

TEST(TierBookTest, WhatMemoryGivesUpGoesToTheFile) {
  TierBook book(/*near=*/2, /*far=*/2);
  Fresh fresh;
  book.Release(*book.Hold(Keys({1, 2}), false, &fresh));
  fresh.clear();
  const auto third = book.Hold(Keys({3}), false, &fresh);
  ASSERT_TRUE(third);
  EXPECT_LT(third->blocks[0], 2) << "what is new goes near";
  const auto demoted = book.TakeDemoted();
  ASSERT_EQ(demoted.size(), 1u);
  // The end of the prefix went, and is found.
  EXPECT_EQ(demoted[0].key, Key(2));
  EXPECT_EQ(demoted[0].near, third->blocks[0]);
  EXPECT_GE(demoted[0].far, 2);
  EXPECT_TRUE(book.TakeDemoted().empty());
  EXPECT_EQ(book.Find(Keys({1, 2, 3})), 3);
  EXPECT_EQ(book.CountFar(Keys({1, 2, 3})), 1);
  EXPECT_EQ(book.near_room(), 1);
  EXPECT_FALSE(book.Hold(Keys({4, 5, 6}), false, &fresh))
      << "where it goes is needed until it is there";
  book.CheckInvariants();
  book.Release({.blocks = {demoted[0].far}});
  // More than memory has room for: the rest goes into the file, in which 2 is in the way.
  fresh.clear();
  const auto more = book.Hold(Keys({4, 5}), true, &fresh);
  ASSERT_TRUE(more);
  EXPECT_LT(more->blocks[0], 2);
  EXPECT_GE(more->blocks[1], 2);
  EXPECT_GE(more->blocks[2], 2);
  EXPECT_TRUE(book.TakeDemoted().empty()) << "the file has no room for 1 beside";
  EXPECT_EQ(book.stats().evicted, 2);
  EXPECT_FALSE(book.Hold(Keys({6}), false, &fresh)) << "all is needed";
  book.CheckInvariants();
}

TEST(TierBookTest, WhatIsStreamedComesNearAndWhatIsKeptGoesFar) {
  TierBook book(2, 2);
  Fresh fresh;
  const auto far = book.HoldFar(Key(1), &fresh);
  ASSERT_TRUE(far);
  EXPECT_GE(far->blocks[0], 2);
  bool is_fresh = false;
  const BlockId near = book.HoldNear(Key(1), &is_fresh);
  EXPECT_LT(near, 2);
  EXPECT_TRUE(is_fresh);
  EXPECT_EQ(book.CountFar(Keys({1})), 0);
  book.CheckInvariants();
  EXPECT_EQ(book.HoldNear(Key(1), &is_fresh), near);
  EXPECT_FALSE(is_fresh);
  book.Release(*far);
  book.ReleaseNear(near);
  book.ReleaseNear(near);
  // Nobody needs anything.
  EXPECT_EQ(book.near_room(), 2);
  for (const auto& stay : {book.HoldFar(Key(7), &fresh), book.HoldFar(Key(8), &fresh)}) {
    ASSERT_TRUE(stay);
    EXPECT_GE(stay->blocks[0], 2);
    book.Release(*stay);
  }
  // A file that is closed takes nothing more.
  book.Release(*book.Hold(Keys({2}), false, &fresh));
  book.CloseFar();
  book.Release(*book.Hold(Keys({3}), false, &fresh));
  EXPECT_TRUE(book.TakeDemoted().empty());
  EXPECT_EQ(book.Find(Keys({1})), 0);
  EXPECT_EQ(book.stats().evicted, 1);
  EXPECT_FALSE(book.Hold(Keys({4, 5, 6}), false, &fresh));
  EXPECT_FALSE(book.Hold(Keys({3, 4}), false, &fresh, /*spared=*/1));
  book.CheckInvariants();
}

TEST(TierBookTest, AStreamedBlockThatAStayNeedsTooLeavesNoRoomWhenItsStreamEnds) {
  TierBook book(3);
  Fresh fresh;
  bool is_fresh = false;
  const BlockId near = book.HoldNear(Key(1), &is_fresh);
  EXPECT_EQ(book.near_room(), 2);
  EXPECT_FALSE(book.Hold(Keys({1}), false, &fresh, /*spared=*/2));
  const auto stay = book.Hold(Keys({1}), false, &fresh, /*spared=*/1);
  ASSERT_TRUE(stay);
  EXPECT_EQ(book.near_room(), 1);
  book.CheckInvariants();
  book.ReleaseNear(near);
  EXPECT_EQ(book.near_room(), 2);
  // The other way round, and with two that stream it.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(book.HoldNear(Key(1), &is_fresh), near);
  EXPECT_EQ(book.near_room(), 1);
  book.Release(*stay);
  EXPECT_EQ(book.near_room(), 2);
  book.NeedOnly(near);
  EXPECT_EQ(book.near_room(), 1);
  book.CheckInvariants();
  book.Release({.blocks = {near}});
  book.ReleaseNear(near);
  EXPECT_EQ(book.near_room(), 3);
  book.CheckInvariants();
}

// A million holds and releases against a model that keeps sets: which keys are there, who needs
// them, and that two different contents never share a block.
TEST(TierBookTest, AMillionRandomOperations) {
  struct Live {
    TierStay stay;
    std::vector<PrefixKey> keys;
  };
  int64_t operations = 0, refused = 0, evicted = 0, found = 0, demoted = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    base::Rng rng(seed);
    const auto near = static_cast<int32_t>(1 + rng.Below(24)),
               far = seed % 2 == 0 ? 0 : static_cast<int32_t>(1 + rng.Below(24)),
               blocks = near + far;
    TierBook book(near, far);
    std::vector<BlockId> arriving;  // far blocks, needed until they are there
    std::deque<Live> live;
    std::map<uint64_t, BlockId> where;  // of each key, when it was written last
    for (int i = 0; i < 50'000; ++i, ++operations) {
      if (live.empty() || rng.Below(2) == 0) {
        Live next;
        const uint64_t chain = rng.Below(6), length = rng.Below(7);
        for (uint64_t k = 0; k < length; ++k) next.keys.push_back(Key(chain * 8 + k));
        const bool open = rng.Below(2) == 0;
        const int64_t there = book.Find(next.keys);
        Fresh fresh;
        auto stay = book.Hold(next.keys, open, &fresh);
        ASSERT_TRUE(stay || fresh.empty());
        if (!stay) {
          ++refused;
          continue;
        }
        next.stay = *stay;
        ASSERT_EQ(next.stay.blocks.size(), next.keys.size() + open);
        for (const DemotedBlock& block : book.TakeDemoted()) {
          ASSERT_LT(block.near, near);
          ASSERT_GE(block.far, near);
          ASSERT_EQ(where[block.key.low], block.near);
          where[block.key.low] = block.far;
          for (const Live& other : live)
            ASSERT_EQ(std::ranges::count(other.stay.blocks, block.far), 0);
          arriving.push_back(block.far);
          ++demoted;
        }
        for (size_t k = 0; k < next.keys.size(); ++k) {
          const bool is_new = std::ranges::count(fresh, static_cast<int32_t>(k)) > 0;
          ASSERT_TRUE(!is_new || static_cast<int64_t>(k) >= there);
          BlockId& at = where[next.keys[k].low];
          if (is_new) at = next.stay.blocks[k];
          ASSERT_EQ(at, next.stay.blocks[k]) << "the block where this content was written";
        }
        // Nobody else's content lies in a block that was written now.
        for (const int32_t index : fresh) {
          for (const Live& other : live)
            ASSERT_EQ(std::ranges::count(other.stay.blocks, next.stay.blocks[index]), 0);
        }
        live.push_back(std::move(next));
      } else {
        const size_t pick = rng.Below(live.size());
        book.Release(live[pick].stay);
        live.erase(live.begin() + static_cast<int64_t>(pick));
      }
      if (rng.Below(200) == 0) book.Lose(static_cast<BlockId>(rng.Below(blocks)));
      if (rng.Below(3) == 0) {
        for (const BlockId block : std::exchange(arriving, {})) book.Release({.blocks = {block}});
      }
      if (i % 64 == 0) book.CheckInvariants();
    }
    evicted += book.stats().evicted;
    found += book.stats().found;
    for (const BlockId block : arriving) book.Release({.blocks = {block}});
    while (!live.empty()) {
      book.Release(live.back().stay);
      live.pop_back();
    }
    book.CheckInvariants();
    // Nobody needs anything: others get all.
    std::vector<PrefixKey> others;
    for (int32_t i = 0; i < blocks; ++i) others.push_back(Key(1000 + static_cast<uint64_t>(i)));
    Fresh fresh;
    ASSERT_TRUE(book.Hold(others, false, &fresh));
  }
  EXPECT_EQ(operations, 1'000'000);
  EXPECT_GT(refused, 10'000);
  EXPECT_GT(evicted, 10'000);
  EXPECT_GT(demoted, 10'000);
  EXPECT_GT(found, 10'000);
}

}  // namespace
}  // namespace forebay::kv
