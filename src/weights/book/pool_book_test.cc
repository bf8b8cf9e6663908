#include "weights/book/pool_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "weights/book/testing/tiles.h"

namespace forebay::weights {
namespace {

PoolBook Book(const char* placement, int members, int64_t layers, int64_t pooled) {
  return PoolBook(FindPlacement(placement)->Make(), {.num_members = members,
                                                     .pool_index = SpreadPool(layers, pooled),
                                                     .kinds = {FfnTiles(8, 2, 3)}});
}

// Layers of two kinds in turn: the FFN above, and one of two experts, whose runs are larger.
PoolBook MixedBook(const char* placement, int members, int64_t layers, int64_t pooled) {
  LayerRuns experts{.num_leaves = 2};
  for (int32_t expert = 0; expert < 2; ++expert) {
    experts.Add(100, expert, 0);
    experts.Add(90, expert, 0);
  }
  PlacementGroup group{.num_members = members,
                       .pool_index = SpreadPool(layers, pooled),
                       .kinds = {FfnTiles(8, 2, 3), experts}};
  for (int64_t layer = 0; layer < layers; ++layer) group.kind_of.push_back(layer % 2);
  return PoolBook(FindPlacement(placement)->Make(), group);
}

// Pulls by hand: after all of a layer's, every member has the bytes of every tile, each written
// once.
void CheckPulls(const PoolBook& book) {
  const int members = book.group().num_members;
  const int64_t layers = book.group().num_layers();
  std::vector<std::vector<uint16_t>> regions;
  for (int member = 0; member < members; ++member) {
    regions.emplace_back(book.held_bytes(member));
    for (int64_t l = 0; l < layers; ++l) {
      const std::vector<TileRun>& runs = book.group().layer(l).runs;
      for (int64_t run = 0; run < static_cast<int64_t>(runs.size()); ++run) {
        const uint64_t offset = book.OffsetOf(member, {l, run});
        if (offset == PoolBook::kNotHeld) continue;
        for (uint64_t i = 0; i < runs[run].bytes; ++i) {
          ASSERT_EQ(regions[member][offset + i], 0);
          regions[member][offset + i] = static_cast<uint16_t>(1 + 100 * l + run);
        }
      }
    }
    EXPECT_EQ(std::ranges::count(regions[member], 0), 0);
  }
  for (int reader = 0; reader < members; ++reader) {
    uint64_t pulled = 0;
    for (int64_t l = 0; l < layers; ++l) {
      if (book.group().pool_index[l] < 0) continue;
      const std::vector<TileRun>& runs = book.group().layer(l).runs;
      for (int32_t piece = 0; piece < book.group().layer(l).num_pieces; ++piece) {
        std::vector<uint16_t> slot(book.SlotBytes(reader));
        uint64_t bytes = 0;
        for (const PullSpan& span : book.Pulls(reader, l, piece)) {
          EXPECT_NE(span.source, reader);
          for (uint64_t i = 0; i < span.bytes; ++i)
            slot[span.slot_offset + i] = regions[span.source][span.offset + i];
          uint64_t at = span.slot_offset;
          for (int64_t run = span.first_run; run < span.first_run + span.num_runs; ++run) {
            for (uint64_t i = 0; i < runs[run].bytes; ++i) ASSERT_EQ(slot[at++], 1 + 100 * l + run);
            EXPECT_EQ(book.OffsetOf(reader, {l, run}), PoolBook::kNotHeld);
          }
          EXPECT_EQ(at, span.slot_offset + span.bytes);
          bytes += span.bytes;
        }
        EXPECT_EQ(bytes, book.PullBytes(reader, l, piece));
        pulled += bytes;
      }
    }
    EXPECT_EQ(pulled, book.StepBytes(reader)) << "rank " << reader << " of " << members;
  }
}

TEST(PoolBook, PullsBringWhatIsLacking) {
  for (const char* name : {"replicated", "by_layer", "striped", "sharded"}) {
    for (int members = 1; members <= 8; ++members) {
      SCOPED_TRACE(name);
      CheckPulls(Book(name, members, 9, 7));
    }
  }
}

TEST(PoolBook, LayersOfTwoKinds) {
  for (const char* name : {"replicated", "by_layer", "sharded"}) {
    for (int members = 1; members <= 8; ++members) {
      SCOPED_TRACE(name);
      CheckPulls(MixedBook(name, members, 9, 7));
    }
  }
  // Runs are not parted: of two experts' four runs over three members the second has two.
  const PoolBook book = MixedBook("sharded", 3, 2, 2);
  EXPECT_EQ(book.OffsetOf(1, {1, 2}), book.OffsetOf(1, {1, 1}) + 90);
  EXPECT_EQ(book.OffsetOf(0, {1, 1}), PoolBook::kNotHeld);
}

// A layer of experts whose two matrices have 70 and 30 bytes an expert.
PoolBook ExpertBook(const std::string& placement, int members, int64_t layers, int32_t experts) {
  LayerRuns layer{.num_leaves = experts, .tensors = TensorKind::kExperts};
  for (const uint64_t bytes : {70, 30}) {
    for (int32_t expert = 0; expert < experts; ++expert) layer.Add(bytes, expert, 0);
  }
  return PoolBook(
      FindPlacement(placement)->Make(),
      {.num_members = members, .pool_index = SpreadPool(layers, layers), .kinds = {layer}});
}

TEST(PoolBook, ExpertsArePulledInOneSpanAMatrixAndPeer) {
  CheckPulls(ExpertBook("by_expert", 4, 3, 8));
  CheckPulls(ExpertBook("by_expert:4", 3, 3, 8));
  const PoolBook book = ExpertBook("by_expert", 4, 3, 256);
  EXPECT_EQ(book.held_bytes(1), 3 * 64 * 100u);
  EXPECT_EQ(book.PullBytes(1, 2, 0), 192 * 100u);
  EXPECT_EQ(book.StepBytes(1), 3 * 192 * 100u);
  EXPECT_EQ(book.Pulls(1, 2, 0).size(), 6u);
}

// A book asks a placement about few layers; it would say the same of each.
TEST(PoolBook, AllLayersLieAsTheirPlacementSays) {
  for (const char* name : {"replicated", "by_layer", "striped", "sharded", "by_expert"}) {
    const std::shared_ptr<const Placement> placement = FindPlacement(name)->Make();
    for (int members = 1; members <= 3; ++members) {
      const PlacementGroup group = MixedBook(name, members, 11, 9).group();
      // Of two experts three ranks are too many.
      if (!placement->Check(group).ok() || (members == 3 && name == std::string("by_expert")))
        continue;
      const PoolBook book(placement, group);
      for (int member = 0; member < members; ++member) {
        for (int64_t layer = 0; layer < group.num_layers(); ++layer) {
          if (group.pool_index[layer] < 0) continue;
          const LayerRuns& runs = group.layer(layer);
          std::vector<uint64_t> lacked(static_cast<size_t>(runs.num_pieces));
          std::set<int64_t> leaves;
          for (int64_t leaf = 0; leaf < runs.num_leaves; ++leaf) leaves.insert(leaf);
          for (int64_t run = 0; run < std::ssize(runs.runs); ++run) {
            const TileRun& tile = runs.runs[static_cast<size_t>(run)];
            const bool holds = placement->Holds(member, {layer, run}, group);
            EXPECT_EQ(book.OffsetOf(member, {layer, run}) != PoolBook::kNotHeld, holds) << name;
            if (holds) continue;
            lacked[static_cast<size_t>(tile.piece)] += tile.bytes;
            leaves.erase(tile.leaf);
          }
          for (int32_t piece = 0; piece < runs.num_pieces; ++piece)
            EXPECT_EQ(book.PullBytes(member, layer, piece), lacked[static_cast<size_t>(piece)]);
          std::set<int64_t> told;
          const base::Part& part = book.LeavesOf(member, layer);
          for (int64_t leaf = part.begin; leaf < part.end; ++leaf) told.insert(leaf);
          EXPECT_EQ(told, leaves) << name << ", rank " << member << " of " << members;
        }
      }
    }
  }
}

TEST(PoolBook, AGroupHoldsOneCopyOfThePool) {
  for (const char* name : {"by_layer", "striped", "sharded"}) {
    for (int members = 1; members <= 8; ++members) {
      const PoolBook book = Book(name, members, 10, 7);
      uint64_t held = 0;
      for (int member = 0; member < members; ++member) held += book.held_bytes(member);
      EXPECT_EQ(held, 7 * book.group().kinds[0].bytes()) << name;
    }
  }
}

TEST(PoolBook, StripedPullsAreOneSpanAPeerAndPiece) {
  const PoolBook book = Book("striped", 4, 3, 3);
  for (int32_t piece = 0; piece < 2; ++piece) {
    const std::vector<PullSpan> spans = book.Pulls(1, 2, piece);
    ASSERT_EQ(spans.size(), 3u);
    EXPECT_EQ(spans[0].source, 0);
    EXPECT_EQ(spans[1].source, 2);
    EXPECT_EQ(spans[2].source, 3);
  }
  EXPECT_EQ(book.SlotBytes(1), 3 * 2 * 2 * 100u);
  EXPECT_EQ(book.PullBytes(1, 0, 1), 3 * 6 * 30 + 3u);
}

TEST(PoolBook, WhatIsReplicatedIsNotPulled) {
  const PoolBook none = Book("by_layer", 4, 5, 0);
  EXPECT_EQ(none.StepBytes(2), 0u);
  EXPECT_EQ(none.SlotBytes(2), 0u);
  EXPECT_EQ(none.held_bytes(2), 0u);
  EXPECT_EQ(Book("replicated", 4, 5, 5).StepBytes(2), 0u);
}

}  // namespace
}  // namespace forebay::weights
