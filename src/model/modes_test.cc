#include "model/modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace forebay::model {
namespace {

using testing::ElementsAre;

// Shift Parallelism (arXiv 2509.16495), section 3.3: its groups for SP 3 x TP 2, but for a slip in
// the text, which has (1, 2, 5) for (1, 3, 5).
TEST(Modes, ThreeByTwoIsThePapers) {
  const Degrees layout{.sp = 3, .tp = 2};
  std::vector<int> ranks, blocks;
  for (int i = 0; i < 6; ++i) {
    ranks.push_back(RankOfBlock(layout, i));
    blocks.push_back(BlockOfRank(layout, i));
  }
  EXPECT_THAT(ranks, ElementsAre(0, 2, 4, 1, 3, 5));
  EXPECT_THAT(blocks, ElementsAre(0, 3, 1, 4, 2, 5));
  for (int block = 0; block < 6; ++block) {
    const int rank = RankOfBlock(layout, block);
    EXPECT_EQ(BlockOfRank(layout, rank), block);
    EXPECT_THAT(SpRanks(layout, layout, block),
                rank % 2 == 0 ? ElementsAre(0, 2, 4) : ElementsAre(1, 3, 5));
    EXPECT_THAT(TpRanks(layout, layout, block), ElementsAre(rank / 2 * 2, rank / 2 * 2 + 1));
    EXPECT_THAT(TpRanks(layout, {.sp = 1, .tp = 6}, block), ElementsAre(0, 2, 4, 1, 3, 5));
    EXPECT_THAT(SpRanks(layout, {.sp = 1, .tp = 6}, block), ElementsAre(rank));
  }
}

// In every mode of every layout a rank is in its own groups at its own place, the members of a
// group say so too, and the runs of blocks cover all leaves in logical order.
TEST(Modes, GroupsAreConsistentAndOrdered) {
  int modes = 0;
  for (int s = 1; s <= 8; ++s) {
    for (int t = 1; s * t <= 8; ++t) {
      const Degrees layout{s, t};
      for (int tp = t; tp <= s * t; tp += t) {
        if (s * t % tp != 0) continue;
        const Degrees mode{s * t / tp, tp};
        ++modes;
        for (int block = 0; block < layout.ranks(); ++block) {
          const std::vector<int> sp = SpRanks(layout, mode, block),
                                 across = TpRanks(layout, mode, block);
          const int rank = RankOfBlock(layout, block);
          EXPECT_EQ(sp.at(static_cast<size_t>(mode.SpIndex(block))), rank);
          EXPECT_EQ(across.at(static_cast<size_t>(mode.TpIndex(block))), rank);
          for (const int peer : sp) EXPECT_EQ(SpRanks(layout, mode, BlockOfRank(layout, peer)), sp);
          for (const int peer : across)
            EXPECT_EQ(TpRanks(layout, mode, BlockOfRank(layout, peer)), across);
        }
        for (const int64_t leaves : {3, 7, 8, 126}) {
          int64_t seen = 0;
          for (int j = 0; j < mode.tp; ++j) {
            const base::Part run = PartOfBlocks(leaves, layout, BlocksOf(mode, j));
            EXPECT_EQ(run.begin, seen);
            seen = run.end;
          }
          EXPECT_EQ(seen, leaves);
        }
      }
    }
  }
  EXPECT_GT(modes, 30);
}

// Cut over tp first, then over sp: the runs of the layout's own mode are those of tp alone.
TEST(Modes, LeavesAreCutOverTpFirst) {
  const Degrees layout{.sp = 2, .tp = 3};
  for (int j = 0; j < 3; ++j)
    EXPECT_EQ(PartOfBlocks(8, layout, BlocksOf(layout, j)), base::EvenPart(8, 3, j));
  std::vector<int64_t> sizes;
  for (int block = 0; block < 6; ++block)
    sizes.push_back(PartOfBlocks(8, layout, {block, block + 1}).size());
  EXPECT_THAT(sizes, ElementsAre(2, 1, 2, 1, 1, 1));
}

// Sizes of the parts that ranks have of `rows` rows, which follow one another.
template <typename PartOf>
std::vector<int64_t> SizesOf(int64_t rows, int ranks, PartOf part_of) {
  std::vector<int64_t> sizes;
  int64_t seen = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const base::Part part = part_of(rank);
    EXPECT_EQ(part.begin, seen);
    sizes.push_back(part.size());
    seen = part.end;
  }
  EXPECT_EQ(seen, rows);
  return sizes;
}

TEST(Modes, RowsAreEvenToWithinOne) {
  const Degrees mode{.sp = 8, .tp = 1};
  EXPECT_THAT(SizesOf(9, 8, [&](int rank) { return RowsOf(9, mode, rank); }),
              ElementsAre(2, 1, 1, 1, 1, 1, 1, 1));
  // What padding to equal parts would compute: the paper's 16 for 9.
  EXPECT_EQ(MostOwnRows(9, mode) * mode.sp, 16);
}

// Rows that are drawn are dealt over all ranks of a stage.
TEST(Modes, DrawnRowsAreDealt) {
  const Degrees layout{.sp = 3, .tp = 2};
  EXPECT_THAT(SizesOf(8, 6, [&](int block) { return DrawnRows(8, layout, block); }),
              ElementsAre(2, 2, 1, 1, 1, 1));
  EXPECT_EQ(DrawnRows(1, layout, 5).size(), 0);
  EXPECT_THAT(SizesOf(7, 2, [](int block) { return DrawnRows(7, {.tp = 2}, block); }),
              ElementsAre(4, 3));
}

}  // namespace
}  // namespace forebay::model
