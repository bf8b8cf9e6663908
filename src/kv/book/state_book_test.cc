#include "kv/book/state_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/rng.h"

namespace forebay::kv {
namespace {

PrefixKey StateKey(uint64_t value) { return {value, ~value}; }

int32_t Kept(StateBook& book, uint64_t key) {
  const int32_t place = book.Take();
  book.Keep(place, StateKey(key));
  book.Unpin(place);
  return place;
}

TEST(StateBookTest, KeepsTheMostRecentlyUsed) {
  StateBook book(4, 2);
  EXPECT_FALSE(book.Has(3));
  const int32_t a = Kept(book, 1), b = Kept(book, 2);
  EXPECT_EQ(a, 4);
  EXPECT_EQ(b, 5);
  book.Pin(a);  // somebody begins from it
  EXPECT_EQ(Kept(book, 3), b);
  EXPECT_EQ(book.Find(StateKey(2)), StateBook::kNone);
  EXPECT_EQ(book.Find(StateKey(1)), a);
  const int32_t c = book.Take();
  EXPECT_EQ(c, b);
  EXPECT_EQ(book.Take(), StateBook::kNone) << "both are pinned";
  book.Unpin(a);
  EXPECT_EQ(Kept(book, 4), a);
  EXPECT_EQ(book.evictions(), 3);
  book.CheckInvariants();
}

TEST(StateBookTest, APlaceOutlivesItsKeyWhileItIsPinned) {
  StateBook book(0, 1);
  const int32_t place = Kept(book, 1);
  book.Pin(place);
  book.Forget(StateKey(1));
  book.Forget(StateKey(1));
  EXPECT_EQ(book.Find(StateKey(1)), StateBook::kNone);
  EXPECT_EQ(book.Take(), StateBook::kNone);
  book.Unpin(place);
  EXPECT_EQ(book.Take(), place);
  EXPECT_EQ(book.evictions(), 0);
  book.CheckInvariants();
}

TEST(StateBookTest, TwoThatComputeTheSameKeepOne) {
  StateBook book(0, 2);
  const int32_t a = book.Take(), b = book.Take();
  book.Keep(a, StateKey(1));
  book.Keep(b, StateKey(1));
  EXPECT_EQ(book.Find(StateKey(1)), a);
  book.Unpin(b);
  book.CheckInvariants();
  EXPECT_EQ(book.Take(), b) << "it is free";
}

// Against a model: what is pinned keeps its content, and what is found has the content of its key.
TEST(StateBookTest, RandomUse) {
  constexpr int32_t kFirst = 3, kCount = 7;
  constexpr uint64_t kKeys = 20;
  base::Rng rng(11);
  StateBook book(kFirst, kCount);
  std::map<int32_t, uint64_t> content;  // by place: whose state it has; 0 while it is written
  std::vector<int32_t> pins;            // places, one for each pin
  int64_t found = 0, full = 0;
  for (int step = 0; step < 20000; ++step) {
    const uint64_t key = 1 + rng.Next() % kKeys;
    switch (rng.Next() % 4) {
      case 0: {
        const int32_t place = book.Take();
        if (place == StateBook::kNone) {
          EXPECT_EQ(std::ranges::count_if(
                        content,
                        [&](const auto& each) { return std::ranges::count(pins, each.first) > 0; }),
                    kCount);
          ++full;
          break;
        }
        ASSERT_EQ(std::ranges::count(pins, place), 0) << "somebody's";
        content[place] = key;
        pins.push_back(place);
        if (rng.Next() % 4 > 0) book.Keep(place, StateKey(key));
        break;
      }
      case 1: {
        const int32_t place = book.Find(StateKey(key));
        if (place == StateBook::kNone) break;
        ASSERT_EQ(content.at(place), key);
        book.Pin(place);
        pins.push_back(place);
        ++found;
        break;
      }
      case 2: {
        if (pins.empty()) break;
        const auto at = static_cast<size_t>(rng.Next() % pins.size());
        book.Unpin(pins[at]);
        pins.erase(pins.begin() + static_cast<int64_t>(at));
        break;
      }
      default: book.Forget(StateKey(key));
    }
    book.CheckInvariants();
  }
  EXPECT_GT(found, 500);
  EXPECT_GT(full, 50);
}

}  // namespace
}  // namespace forebay::kv
