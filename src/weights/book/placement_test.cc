#include "weights/book/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "weights/book/testing/tiles.h"

namespace forebay::weights {
namespace {

using testing::ElementsAre;

PlacementGroup Group(int ranks, int64_t layers, int64_t pooled) {
  return {.num_ranks = ranks, .pool_index = SpreadPool(layers, pooled), .layer = FfnTiles(8, 4, 6)};
}

const Placement& Find(std::string_view name) { return **FindPlacement(name); }

// Tile t of layer l belongs to rank (l + t) % ranks and the next one: to test Source.
class TwoHolders : public Placement {
 public:
  std::string_view name() const override { return "two"; }

 protected:
  bool PoolHolds(int rank, const TileId& tile, const PlacementGroup& group) const override {
    const int first = static_cast<int>((tile.layer + tile.tile) % group.num_ranks);
    return rank == first || rank == (first + 1) % group.num_ranks;
  }
};

TEST(Placement, ReplicatedReadsFromItself) {
  const PlacementGroup group = Group(4, 3, 3);
  EXPECT_THAT(Find("replicated").Holders({2, 5}, group), ElementsAre(0, 1, 2, 3));
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(Find("replicated").Source(rank, {2, 5}, group), rank);
  EXPECT_FALSE(Find("replicated").pools());
}

TEST(Placement, SourceIsTheNearestHolder) {
  const TwoHolders placement;
  const PlacementGroup group = Group(4, 1, 1);
  EXPECT_EQ(placement.Source(0, {0, 0}, group), 0);
  EXPECT_EQ(placement.Source(1, {0, 0}, group), 1);
  EXPECT_EQ(placement.Source(2, {0, 0}, group), 0);  // 2 -> 3 -> 0
  EXPECT_EQ(placement.Source(3, {0, 0}, group), 0);
  EXPECT_EQ(placement.Source(0, {0, 2}, group), 2);
}

TEST(Placement, ThePoolIsSpreadEvenly) {
  EXPECT_THAT(SpreadPool(4, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(SpreadPool(6, 0), ElementsAre(-1, -1, -1, -1, -1, -1));
  EXPECT_THAT(SpreadPool(6, 2), ElementsAre(-1, 0, -1, -1, 1, -1));
  EXPECT_THAT(SpreadPool(5, 3), ElementsAre(0, -1, 1, -1, 2));
  for (int64_t layers = 1; layers < 70; ++layers) {
    for (int64_t pooled = 0; pooled <= layers; ++pooled) {
      const std::vector<int32_t> index = SpreadPool(layers, pooled);
      int32_t next = 0;
      int64_t last = -1;
      for (int64_t layer = 0; layer < layers; ++layer) {
        if (index[layer] < 0) continue;
        EXPECT_EQ(index[layer], next++);
        if (last >= 0) {
          EXPECT_LE(std::abs((layer - last) * pooled - layers), pooled);  // within one layer of even
        }
        last = layer;
      }
      EXPECT_EQ(next, pooled);
    }
  }
}

TEST(Placement, ByLayerTakesTurns) {
  const PlacementGroup group = Group(3, 8, 8);
  std::vector<int> owners;
  for (int64_t layer = 0; layer < 8; ++layer) owners.push_back(Find("by_layer").Holders({layer, 3}, group).front());
  EXPECT_THAT(owners, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
  // Of the pooled layers alone, so that owners are as even as can be.
  const PlacementGroup half = Group(2, 8, 4);  // layers 1, 3, 5, 7
  EXPECT_THAT(Find("by_layer").Holders({0, 0}, half), ElementsAre(0, 1));
  EXPECT_THAT(Find("by_layer").Holders({1, 0}, half), ElementsAre(0));
  EXPECT_THAT(Find("by_layer").Holders({3, 0}, half), ElementsAre(1));
  EXPECT_THAT(Find("by_layer").Holders({5, 0}, half), ElementsAre(0));
}

TEST(Placement, StripedRanksOwnWholeLeaves) {
  const PlacementGroup group = Group(3, 2, 2);
  for (size_t tile = 0; tile < group.layer.tiles.size(); ++tile) {
    const int leaf = group.layer.tiles[tile].leaf;
    EXPECT_THAT(Find("striped").Holders({1, static_cast<int64_t>(tile)}, group), ElementsAre(leaf < 3 ? 0 : leaf < 6 ? 1 : 2));
  }
}

TEST(Placement, ShardedSplitsTheTilesEvenly) {
  const PlacementGroup group = Group(4, 1, 1);  // 32 + 48 tiles
  EXPECT_THAT(Find("sharded").Holders({0, 19}, group), ElementsAre(0));
  EXPECT_THAT(Find("sharded").Holders({0, 20}, group), ElementsAre(1));
  EXPECT_THAT(Find("sharded").Holders({0, 79}, group), ElementsAre(3));
}

// Every tile has a holder, the source holds it, and a pooled layer has exactly one copy.
TEST(Placement, EveryTileHasAHolder) {
  for (const char* name : {"replicated", "by_layer", "striped", "sharded"}) {
    const Placement& placement = Find(name);
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (const int64_t pooled : {0, 1, 5, 7}) {
        const PlacementGroup group = Group(ranks, 7, pooled);
        uint64_t copies_bytes = 0;
        for (int64_t layer = 0; layer < 7; ++layer) {
          for (int64_t tile = 0; tile < static_cast<int64_t>(group.layer.tiles.size()); ++tile) {
            const std::vector<int> holders = placement.Holders({layer, tile}, group);
            ASSERT_FALSE(holders.empty());
            copies_bytes += holders.size() * group.layer.tiles[tile].bytes;
            for (int reader = 0; reader < ranks; ++reader) {
              const int source = placement.Source(reader, {layer, tile}, group);
              EXPECT_TRUE(placement.Holds(source, {layer, tile}, group));
              EXPECT_EQ(placement.Holds(reader, {layer, tile}, group), source == reader);
            }
          }
        }
        const uint64_t copies = placement.pools() ? pooled + (7 - pooled) * ranks : 7 * ranks;
        EXPECT_EQ(copies_bytes, copies * group.layer.bytes()) << name;
      }
    }
  }
}

TEST(Placement, UnknownNamesAreRefused) {
  const base::Status status = FindPlacement("by_tile").status();
  EXPECT_EQ(status.code(), kUnknownPlacement);
  EXPECT_THAT(status.message(), testing::HasSubstr("replicated, by_layer, striped, sharded"));
}

}  // namespace
}  // namespace forebay::weights
