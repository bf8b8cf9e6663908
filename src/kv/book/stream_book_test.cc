#include "kv/book/stream_book.h"

#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"

namespace forebay::kv {
namespace {

TEST(StreamBook, ABlockHasOnePlaceHoweverManyReadIt) {
  StreamBook book(2);
  const int32_t place = book.Take(7);
  EXPECT_EQ(book.Take(7), place);
  EXPECT_EQ(book.room(), 1);
  const int32_t other = book.Take(9);
  EXPECT_NE(other, place);
  EXPECT_EQ(book.room(), 0);
  book.Release(7);
  EXPECT_EQ(book.room(), 0) << "one still reads it";
  book.Release(7);
  EXPECT_EQ(book.room(), 1);
  EXPECT_EQ(book.Take(7), place);
  EXPECT_EQ(book.blocks()[0].number, 3) << "what lies below may be another block's now";
  book.Release(7);
  ASSERT_EQ(book.blocks().size(), 1u);
  EXPECT_EQ(book.blocks()[0], (StreamedBlock{other, 9, 2}));
}

TEST(StreamBook, RandomReaders) {
  constexpr int32_t kPlaces = 20;
  StreamBook book(kPlaces);
  std::map<BlockId, std::pair<int32_t, int>> readers;  // place, how many
  base::Rng rng(3);
  for (int i = 0; i < 20'000; ++i) {
    const auto below = static_cast<BlockId>(rng.Below(60));
    const auto found = readers.find(below);
    if (rng.Below(2) == 0 && found != readers.end()) {
      book.Release(below);
      if (--found->second.second == 0) readers.erase(found);
    } else if (found != readers.end() || book.room() > 0) {
      const int32_t place = book.Take(below);
      auto& reader = readers.try_emplace(below, place, 0).first->second;
      EXPECT_EQ(place, reader.first);
      ++reader.second;
    }
    ASSERT_EQ(book.room(), kPlaces - std::ssize(readers));
    ASSERT_EQ(book.blocks().size(), readers.size());
    int32_t last = -1;
    for (const StreamedBlock& block : book.blocks()) {
      EXPECT_GT(block.place, last);
      EXPECT_LT(block.place, kPlaces);
      EXPECT_EQ(readers.at(block.below).first, block.place);
      last = block.place;
    }
  }
}

}  // namespace
}  // namespace forebay::kv
