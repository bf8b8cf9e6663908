#include "model/head_map.h"

#include <gtest/gtest.h>

namespace forebay::model {
namespace {

TEST(HeadMap, SingleRankKeepsLogicalOrder) {
  const HeadMap map = HeadMap::SingleRank(4, 2);
  EXPECT_EQ(map.QueryHeadsOf(0), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(map.KvHeadsOf(0), (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(map.QueryHeadsOf(1).empty());
}

TEST(HeadMap, SlotsOrderAPermutedMapWithReplicas) {
  HeadMap map;
  map.query = {{0, 1}, {1, 0}, {0, 0}, {1, 1}};
  map.kv = {{{0, 0}, {1, 0}}};
  EXPECT_EQ(map.QueryHeadsOf(0), (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(map.QueryHeadsOf(1), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(map.KvHeadsOf(0), (std::vector<int32_t>{0}));
  EXPECT_EQ(map.KvHeadsOf(1), (std::vector<int32_t>{0}));
}

}  // namespace
}  // namespace forebay::model
