#include "weights/book/pool_book.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "weights/book/testing/tiles.h"

namespace forebay::weights {
namespace {

PoolBook Book(const char* placement, int ranks, int64_t layers, int64_t pooled) {
  return PoolBook(**FindPlacement(placement),
                  {.num_ranks = ranks, .pool_index = SpreadPool(layers, pooled), .layer = FfnTiles(8, 2, 3)});
}

// Pulls by hand: after all of a layer's, every rank has the bytes of every tile, each written once.
TEST(PoolBook, PullsBringWhatIsLacking) {
  for (const char* name : {"replicated", "by_layer", "striped", "sharded"}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      const PoolBook book = Book(name, ranks, 9, 7);
      const LayerTiles& layer = book.group().layer;
      std::vector<std::vector<uint16_t>> regions;
      for (int rank = 0; rank < ranks; ++rank) {
        regions.emplace_back(book.held_bytes(rank));
        for (int64_t l = 0; l < 9; ++l) {
          for (int64_t tile = 0; tile < static_cast<int64_t>(layer.tiles.size()); ++tile) {
            const uint64_t offset = book.OffsetOf(rank, {l, tile});
            if (offset == PoolBook::kNotHeld) continue;
            for (uint64_t i = 0; i < layer.tiles[tile].bytes; ++i) {
              ASSERT_EQ(regions[rank][offset + i], 0);
              regions[rank][offset + i] = static_cast<uint16_t>(1 + 100 * l + tile);
            }
          }
        }
      }
      for (int reader = 0; reader < ranks; ++reader) {
        uint64_t pulled = 0;
        for (int64_t l = 0; l < 9; ++l) {
          if (book.group().pool_index[l] < 0) continue;
          for (int32_t piece = 0; piece < 2; ++piece) {
            std::vector<uint16_t> slot(book.SlotBytes(reader));
            uint64_t bytes = 0;
            for (const PullSpan& span : book.Pulls(reader, l, piece)) {
              EXPECT_NE(span.source, reader);
              for (uint64_t i = 0; i < span.bytes; ++i) slot[span.slot_offset + i] = regions[span.source][span.offset + i];
              uint64_t at = span.slot_offset;
              for (int64_t tile = span.first_tile; tile < span.first_tile + span.num_tiles; ++tile) {
                for (uint64_t i = 0; i < layer.tiles[tile].bytes; ++i) ASSERT_EQ(slot[at++], 1 + 100 * l + tile);
                EXPECT_EQ(layer.tiles[tile].piece, piece);
                EXPECT_EQ(book.OffsetOf(reader, {l, tile}), PoolBook::kNotHeld);
              }
              EXPECT_EQ(at, span.slot_offset + span.bytes);
              bytes += span.bytes;
            }
            EXPECT_EQ(bytes, book.PullBytes(reader, l, piece));
            pulled += bytes;
          }
        }
        EXPECT_EQ(pulled, book.StepBytes(reader)) << name << " rank " << reader << " of " << ranks;
      }
    }
  }
}

TEST(PoolBook, AGroupHoldsOneCopyOfThePool) {
  for (const char* name : {"by_layer", "striped", "sharded"}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      const PoolBook book = Book(name, ranks, 10, 7);
      uint64_t held = 0;
      for (int rank = 0; rank < ranks; ++rank) held += book.held_bytes(rank);
      EXPECT_EQ(held, 7 * book.group().layer.bytes()) << name;
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
