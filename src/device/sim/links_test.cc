#include "device/sim/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace forebay::device {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr TimePs kUs = 1'000'000;

// (tag, time) of every flow's end, in order.
std::vector<std::pair<uint64_t, TimePs>> RunToEnd(Links& links) {
  std::vector<std::pair<uint64_t, TimePs>> ends;
  links.Settle(0);
  while (links.next() != kNever) {
    const TimePs now = links.next();
    uint64_t tag = 0;
    while (links.next() == now) {
      if (links.Pop(now, &tag)) ends.emplace_back(tag, now);
    }
    links.Settle(now);
    links.CheckInvariants();
  }
  return ends;
}

// 1e9 bytes/s: 1000 bytes take 1 us alone.
struct FourNodes {
  explicit FourNodes(LinkSharing sharing) : links(sharing) {
    for (int node = 0; node < 4; ++node)
      egress.push_back(links.Add(1e9)), ingress.push_back(links.Add(1e9));
  }
  void Start(int from, int to, uint64_t bytes, uint64_t tag, TimePs begin = 0) {
    links.Start(0, begin, egress[from], ingress[to], bytes, tag);
  }
  Links links;
  std::vector<int> egress, ingress;
};

TEST(Links, TwoFlowsShareAnEgress) {
  FourNodes nodes(LinkSharing::kFair);
  nodes.Start(0, 1, 1000, 1);
  nodes.Start(0, 2, 2000, 2);
  // Half each until 2 us; then the second has 1000 bytes left, alone.
  EXPECT_THAT(RunToEnd(nodes.links), ElementsAre(Pair(1, 2 * kUs), Pair(2, 3 * kUs)));
  EXPECT_NEAR(nodes.links.carried(nodes.egress[0]), 3000, 1e-2);
  EXPECT_NEAR(nodes.links.carried(nodes.ingress[2]), 2000, 1e-2);
}

TEST(Links, AnIncastOfThreeTakesThreeTimesAsLong) {
  FourNodes nodes(LinkSharing::kFair);
  for (const int from : {1, 2, 3}) nodes.Start(from, 0, 1000, from);
  const auto ends = RunToEnd(nodes.links);
  ASSERT_EQ(ends.size(), 3u);
  for (const auto& [tag, time] : ends) EXPECT_NEAR(static_cast<double>(time), 3 * kUs, 2);
}

// Flows 1 -> 0, 2 -> 0, 3 -> 0 get a third each; 3 -> 1 what flow 3 -> 0 leaves of 3's egress: two
// thirds.
TEST(Links, WhatAFlowCannotUseGoesToTheOthers) {
  FourNodes nodes(LinkSharing::kFair);
  for (const int from : {1, 2, 3}) nodes.Start(from, 0, 3000, from);
  nodes.Start(3, 1, 1000, 4);
  nodes.links.Settle(0);
  EXPECT_NEAR(nodes.links.load(nodes.ingress[1]), 2e9 / 3, 1);
  EXPECT_NEAR(nodes.links.load(nodes.egress[3]), 1e9, 1);
  const auto ends = RunToEnd(nodes.links);
  EXPECT_EQ(ends[0].first, 4u);
  EXPECT_NEAR(static_cast<double>(ends[0].second), 1.5 * kUs, 2);
}

TEST(Links, FifoServesInTheOrderOfStart) {
  FourNodes nodes(LinkSharing::kFifo);
  nodes.Start(0, 1, 1000, 1);
  nodes.Start(0, 2, 1000, 2);
  nodes.Start(3, 2, 1000, 3);  // 2's ingress is free as long as flow 2 waits
  EXPECT_THAT(RunToEnd(nodes.links),
              ElementsAre(Pair(1, 1 * kUs), Pair(3, 1 * kUs), Pair(2, 2 * kUs)));
}

TEST(Links, FifoGivesTheEarlierFlowItsLinksBack) {
  FourNodes nodes(LinkSharing::kFifo);
  nodes.Start(0, 1, 1000, 1);
  nodes.Start(0, 2, 1000, 2);
  nodes.Start(3, 2, 2000, 3);  // 1 us alone, then behind flow 2 for 1 us
  EXPECT_THAT(RunToEnd(nodes.links),
              ElementsAre(Pair(1, 1 * kUs), Pair(2, 2 * kUs), Pair(3, 3 * kUs)));
}

// Two copies to two targets share an egress equally, into however many flows the first is cut, and
// however many of them are under way.
TEST(Links, ACopysTimeDoesNotDependOnItsSlices) {
  for (const int slices : {1, 2, 5, 40}) {
    FourNodes nodes(LinkSharing::kFair);
    nodes.Start(0, 2, 200'000, 0);
    for (int slice = 0; slice < slices; ++slice) nodes.Start(0, 1, 100'000 / slices, 1);
    const auto ends = RunToEnd(nodes.links);
    // Half the rate each until the first copy is there, then the second alone.
    EXPECT_NEAR(static_cast<double>(ends[slices - 1].second), 200 * kUs, 100) << slices;
    EXPECT_EQ(ends.back().first, 0u) << slices;
    EXPECT_NEAR(static_cast<double>(ends.back().second), 300 * kUs, 100) << slices;
  }
}

TEST(Links, AFlowBeginsAfterItsLatency) {
  FourNodes nodes(LinkSharing::kFair);
  nodes.Start(0, 1, 2000, 1);
  nodes.Start(2, 1, 1000, 2, 1 * kUs);
  EXPECT_THAT(RunToEnd(nodes.links),
              testing::UnorderedElementsAre(Pair(1, 3 * kUs), Pair(2, 3 * kUs)));
}

// Links of different capacities, flows that come and go at random: RunToEnd checks the invariants
// at every change.
TEST(Links, RandomFlowsConserveBytesAndShareFairly) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    base::Rng rng(seed);
    Links links(seed % 2 == 0 ? LinkSharing::kFair : LinkSharing::kFifo);
    const int nodes = 2 + static_cast<int>(rng.Below(seed % 3 == 0 ? 40 : 7));
    for (int i = 0; i < 2 * nodes; ++i) links.Add(1e9 * static_cast<double>(1 + rng.Below(4)));
    std::vector<double> bytes_of(2 * nodes);
    const int flows = 1 + static_cast<int>(rng.Below(20 * static_cast<uint64_t>(nodes)));
    for (int tag = 0; tag < flows; ++tag) {
      const int source = 2 * static_cast<int>(rng.Below(nodes)),
                target = 2 * static_cast<int>(rng.Below(nodes)) + 1;
      const uint64_t bytes = rng.Below(1'000'000);
      links.Start(0, static_cast<TimePs>(rng.Below(3) * rng.Below(500'000'000)), source, target,
                  bytes, tag);
      bytes_of[source] += static_cast<double>(bytes);
      bytes_of[target] += static_cast<double>(bytes);
    }
    EXPECT_EQ(RunToEnd(links).size(), static_cast<size_t>(flows));
    for (int link = 0; link < 2 * nodes; ++link) {
      EXPECT_NEAR(links.carried(link), bytes_of[link], 1 + 1e-6 * bytes_of[link])
          << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace forebay::device
