#include "weights/book/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "weights/book/testing/tiles.h"

namespace forebay::weights {
namespace {

using testing::ElementsAre;

PlacementGroup Group(int members, int64_t layers, int64_t pooled) {
  return {.num_members = members,
          .pool_index = SpreadPool(layers, pooled),
          .kinds = {FfnTiles(8, 4, 6)}};
}

// Placements that the tests found; they live as long as the tests.
const Placement& Find(std::string_view name) {
  static std::vector<std::shared_ptr<const Placement>> found;
  return *found.emplace_back(FindPlacement(name)->Make());
}

// Run t of layer l belongs to member (l + t) % members and the next one: to test Source.
class TwoHolders : public Placement {
 protected:
  bool PoolHolds(int member, const RunId& run, const PlacementGroup& group) const override {
    const int first = static_cast<int>((run.layer + run.run) % group.num_members);
    return member == first || member == (first + 1) % group.num_members;
  }
};

TEST(Placement, ReplicatedReadsFromItself) {
  const PlacementGroup group = Group(4, 3, 3);
  EXPECT_THAT(Find("replicated").Holders({2, 5}, group), ElementsAre(0, 1, 2, 3));
  for (int member = 0; member < 4; ++member)
    EXPECT_EQ(Find("replicated").Source(member, {2, 5}, group), member);
  EXPECT_FALSE(FindPlacement("replicated")->pools());
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
          // within one layer of even
          EXPECT_LE(std::abs((layer - last) * pooled - layers), pooled);
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
  for (int64_t layer = 0; layer < 8; ++layer)
    owners.push_back(Find("by_layer").Holders({layer, 3}, group).front());
  EXPECT_THAT(owners, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
  // Owners are dealt over the pooled layers alone, so that they are as even as can be.
  const PlacementGroup half = Group(2, 8, 4);  // layers 1, 3, 5, 7
  EXPECT_THAT(Find("by_layer").Holders({0, 0}, half), ElementsAre(0, 1));
  EXPECT_THAT(Find("by_layer").Holders({1, 0}, half), ElementsAre(0));
  EXPECT_THAT(Find("by_layer").Holders({3, 0}, half), ElementsAre(1));
  EXPECT_THAT(Find("by_layer").Holders({5, 0}, half), ElementsAre(0));
}

TEST(Placement, StripedRanksOwnWholeLeaves) {
  const PlacementGroup group = Group(3, 2, 2);
  for (size_t tile = 0; tile < group.kinds[0].runs.size(); ++tile) {
    const int leaf = group.kinds[0].runs[tile].leaf;
    EXPECT_THAT(Find("striped").Holders({1, static_cast<int64_t>(tile)}, group),
                ElementsAre(leaf < 3   ? 0
                            : leaf < 6 ? 1
                                       : 2));
  }
}

TEST(Placement, ShardedSplitsTheBytesEvenly) {
  // 32 tiles of 100 bytes and 48 of 30, 6 of them with a byte more: 4,646 bytes.
  const PlacementGroup group = Group(4, 1, 1);
  EXPECT_THAT(Find("sharded").Holders({0, 11}, group), ElementsAre(0));
  EXPECT_THAT(Find("sharded").Holders({0, 12}, group), ElementsAre(1));
  EXPECT_THAT(Find("sharded").Holders({0, 22}, group), ElementsAre(1));
  EXPECT_THAT(Find("sharded").Holders({0, 23}, group), ElementsAre(2));
  EXPECT_THAT(Find("sharded").Holders({0, 40}, group), ElementsAre(2));
  EXPECT_THAT(Find("sharded").Holders({0, 41}, group), ElementsAre(3));
  EXPECT_THAT(Find("sharded").Holders({0, 79}, group), ElementsAre(3));
  // No member has more than half a run above its part.
  for (int members = 1; members <= 8; ++members) {
    const PlacementGroup even = Group(members, 1, 1);
    for (int member = 0; member < members; ++member) {
      uint64_t held = 0;
      for (int64_t tile = 0; tile < std::ssize(even.kinds[0].runs); ++tile) {
        if (Find("sharded").Holds(member, {0, tile}, even)) held += even.kinds[0].runs[tile].bytes;
      }
      EXPECT_NEAR(held, even.kinds[0].bytes() / members, 101) << member << " of " << members;
    }
  }
}

// Every tile has a holder, the source holds it, and a pooled layer has exactly one copy.
TEST(Placement, EveryTileHasAHolder) {
  for (const char* name : {"replicated", "by_layer", "striped", "sharded"}) {
    const Placement& placement = Find(name);
    for (int members = 1; members <= 8; ++members) {
      for (const int64_t pooled : {0, 1, 5, 7}) {
        const PlacementGroup group = Group(members, 7, pooled);
        uint64_t copies_bytes = 0;
        for (int64_t layer = 0; layer < 7; ++layer) {
          for (int64_t tile = 0; tile < static_cast<int64_t>(group.kinds[0].runs.size()); ++tile) {
            const std::vector<int> holders = placement.Holders({layer, tile}, group);
            ASSERT_FALSE(holders.empty());
            copies_bytes += holders.size() * group.kinds[0].runs[tile].bytes;
            for (int reader = 0; reader < members; ++reader) {
              const int source = placement.Source(reader, {layer, tile}, group);
              EXPECT_TRUE(placement.Holds(source, {layer, tile}, group));
              EXPECT_EQ(placement.Holds(reader, {layer, tile}, group), source == reader);
            }
          }
        }
        const uint64_t copies =
            FindPlacement(name)->pools() ? pooled + (7 - pooled) * members : 7 * members;
        EXPECT_EQ(copies_bytes, copies * group.kinds[0].bytes()) << name;
      }
    }
  }
}

PlacementGroup Experts(int members, int32_t experts) {
  LayerRuns layer{.num_leaves = experts, .tensors = TensorKind::kExperts};
  for (int32_t expert = 0; expert < experts; ++expert) layer.Add(100, expert, 0);
  return {.num_members = members, .pool_index = {0}, .kinds = {layer}};
}

// How many experts the member holds, and where the first is.
std::pair<int64_t, int64_t> Held(const Placement& placement, int member,
                                 const PlacementGroup& group) {
  int64_t count = 0, first = -1;
  for (int64_t expert = 0; expert < group.kinds[0].num_leaves; ++expert) {
    if (!placement.Holds(member, {0, expert}, group)) continue;
    if (count++ == 0) first = expert;
  }
  return {count, first};
}

TEST(Placement, ExpertsCoverExactlyWithTheLeastSize) {
  struct Case {
    int members;
    int32_t experts;
    int64_t size, stride;
  };
  for (const auto& [members, experts, size, stride] : {Case{3, 256, 86, 85},
                                                       {4, 256, 64, 64},
                                                       {5, 256, 52, 51},
                                                       {6, 256, 46, 42},
                                                       {7, 256, 40, 36},
                                                       {8, 256, 32, 32},
                                                       {3, 8, 4, 2},
                                                       {1, 8, 8, 0}}) {
    const PlacementGroup group = Experts(members, experts);
    const Placement& placement = Find("by_expert");
    EXPECT_TRUE(placement.Check(group).ok());
    for (int member = 0; member < members; ++member)
      EXPECT_EQ(Held(placement, member, group), std::pair(size, member * stride))
          << members << " ranks";
  }
}

// 4 members that hold 94 of 256 experts, 54 apart: the nearest holder serves evenly, the next one
// upwards does not.
TEST(Placement, ExpertsComeFromTheNearestHolder) {
  const PlacementGroup group = Experts(4, 256);
  const Placement& placement = Find("by_expert:94");
  EXPECT_TRUE(placement.Check(group).ok());
  const auto served = [&](const auto& source) {
    std::vector<int> experts(4);
    for (int reader = 0; reader < 4; ++reader) {
      for (int64_t expert = 0; expert < 256; ++expert) {
        const int member = source(reader, RunId{0, expert});
        EXPECT_TRUE(placement.Holds(member, {0, expert}, group));
        if (member != reader) ++experts[static_cast<size_t>(member)];
      }
    }
    return experts;
  };
  EXPECT_THAT(
      served([&](int reader, const RunId& run) { return placement.Source(reader, run, group); }),
      ElementsAre(162, 162, 162, 162));
  EXPECT_THAT(served([&](int reader, const RunId& run) {
                return placement.Placement::Source(reader, run, group);
              }),
              ElementsAre(242, 122, 122, 162));
}

TEST(Placement, SizesOfExperts) {
  EXPECT_THAT(ExpertSizes(8, 3), ElementsAre(4, 6));
  EXPECT_THAT(ExpertSizes(8, 4), ElementsAre(2, 5));
  EXPECT_THAT(ExpertSizes(8, 1), ElementsAre(8));
  EXPECT_THAT(ExpertSizes(8, 9), ElementsAre());
  for (const int64_t size : ExpertSizes(256, 5))
    EXPECT_TRUE(Find(fmt::format("by_expert:{}", size)).Check(Experts(5, 256)).ok()) << size;
}

TEST(Placement, ExpertsThatAreNotCoveredAreRefused) {
  base::Status status = Find("by_expert:65").Check(Experts(4, 256));
  EXPECT_EQ(status.code(), kCannotPlace);
  EXPECT_THAT(status.message(), testing::EndsWith("expected 64 or 67"));
  status = Find("by_expert:10").Check(Experts(4, 256));
  EXPECT_THAT(status.message(), testing::EndsWith("expected 64"));
  status = Find("by_expert").Check(Experts(9, 8));
  EXPECT_THAT(status.message(), testing::HasSubstr("9 ranks of 8 experts"));
}

TEST(Placement, UnknownNamesAreRefused) {
  const base::Status status = FindPlacement("by_tile").status();
  EXPECT_EQ(status.code(), kUnknownPlacement);
  EXPECT_THAT(status.message(), testing::HasSubstr("replicated, by_layer, striped, sharded"));
}

TEST(Placement, AParameterIsRefusedWhereNoneIsTaken) {
  for (const char* text : {"striped:2", "striped:", "by_layer:x"}) {
    const base::Status status = FindPlacement(text).status();
    EXPECT_EQ(status.code(), kUnknownPlacement) << text;
    EXPECT_THAT(status.message(), testing::HasSubstr(text));
  }
  EXPECT_THAT(FindPlacement("striped:2").status().message(), testing::EndsWith("expected striped"));
  EXPECT_EQ(FindPlacement("striped")->kind, &kStriped);
  EXPECT_EQ(kStriped.tensors, TensorKind::kDense);
}

TEST(Placement, AChoiceIsReadAsItIsWritten) {
  for (const char* text : {"replicated", "sharded", "by_expert", "by_expert:24"})
    EXPECT_EQ(FindPlacement(text)->text(), text);
  EXPECT_EQ(*FindPlacement("by_expert:24"), (ChosenPlacement{&kByExpert, 24}));
  EXPECT_NE(*FindPlacement("by_expert:24"), *FindPlacement("by_expert"));
  EXPECT_LT(ChosenPlacement{&kByLayer}, ChosenPlacement{&kStriped});
}

TEST(Placement, ThePoolIsSpreadOverTheLayersThatCan) {
  const std::vector<bool> can = {false, false, true, true, false, true, true};
  EXPECT_THAT(SpreadPool(can, 4), ElementsAre(-1, -1, 0, 1, -1, 2, 3));
  EXPECT_THAT(SpreadPool(can, 2), ElementsAre(-1, -1, -1, 0, -1, -1, 1));
  EXPECT_THAT(SpreadPool(can, 0), testing::Each(-1));
}

}  // namespace
}  // namespace forebay::weights
