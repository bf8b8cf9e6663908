#include "weights/book/placement.h"

#include <gtest/gtest.h>

namespace forebay::weights {
namespace {

// Tile t of layer l belongs to rank (l + t) % ranks and the next one: to test Source.
class TwoHolders : public Placement {
 public:
  std::string_view name() const override { return "two"; }
  std::vector<int> Holders(const TileId& tile, const PlacementGroup& group) const override {
    const int first = static_cast<int>((tile.layer + tile.tile) % group.num_ranks);
    return {first, (first + 1) % group.num_ranks};
  }
};

TEST(Placement, ReplicatedReadsFromItself) {
  auto placement = FindPlacement("replicated");
  ASSERT_TRUE(placement.ok());
  const PlacementGroup group{.num_ranks = 4, .num_layers = 3};
  EXPECT_EQ((*placement)->Holders({2, 5}, group), (std::vector<int>{0, 1, 2, 3}));
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ((*placement)->Source(rank, {2, 5}, group), rank);
}

TEST(Placement, SourceIsTheNearestHolder) {
  const TwoHolders placement;
  const PlacementGroup group{.num_ranks = 4, .num_layers = 1};
  EXPECT_EQ(placement.Source(0, {0, 0}, group), 0);
  EXPECT_EQ(placement.Source(1, {0, 0}, group), 1);
  EXPECT_EQ(placement.Source(2, {0, 0}, group), 0);  // 2 -> 3 -> 0
  EXPECT_EQ(placement.Source(3, {0, 0}, group), 0);
  EXPECT_EQ(placement.Source(0, {0, 2}, group), 2);
}

TEST(Placement, UnknownNamesAreRefused) {
  EXPECT_EQ(FindPlacement("striped").status().code(), kUnknownPlacement);
}

}  // namespace
}  // namespace forebay::weights
