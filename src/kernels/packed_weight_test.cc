#include "kernels/packed_weight.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/testing/pack_rounded.h"

namespace forebay::kernels {
namespace {

std::vector<int32_t> Begins(const LeafBorders& borders) {
  return {borders.begin, borders.begin + borders.num_leaves + 1};
}
using Borders = std::vector<int32_t>;

TEST(LeafBordersTest, SingleIsOneLeaf) {
  EXPECT_EQ(Begins(LeafBorders::Single(577)), (Borders{0, 577}));
}

TEST(LeafBordersTest, DownUses64WhereTheLeavesAreWhole64s) {
  EXPECT_EQ(Begins(LeafBorders::ForDown(1536)),
            (Borders{0, 192, 384, 576, 768, 960, 1152, 1344, 1536}));
  EXPECT_EQ(Begins(LeafBorders::ForDown(512)), (Borders{0, 64, 128, 192, 256, 320, 384, 448, 512}));
}

TEST(LeafBordersTest, DownUses32Elsewhere) {
  EXPECT_EQ(Begins(LeafBorders::ForDown(1000)),
            (Borders{0, 96, 224, 352, 480, 608, 736, 864, 1000}));
  EXPECT_EQ(Begins(LeafBorders::ForDown(256)), (Borders{0, 32, 64, 96, 128, 160, 192, 224, 256}));
  EXPECT_EQ(Begins(LeafBorders::ForDown(11008))[1], 1376);
}

TEST(LeafBordersTest, DownHasOneLeafPer32AtMost) {
  EXPECT_EQ(Begins(LeafBorders::ForDown(2)), (Borders{0, 2}));
  EXPECT_EQ(Begins(LeafBorders::ForDown(63)), (Borders{0, 63}));
  EXPECT_EQ(Begins(LeafBorders::ForDown(64)), (Borders{0, 32, 64}));
  EXPECT_EQ(Begins(LeafBorders::ForDown(100)), (Borders{0, 32, 64, 100}));
}

TEST(LeafBordersTest, DownLeavesAreNeverEmpty) {
  for (int k = 1; k < 5000; ++k) {
    const LeafBorders borders = LeafBorders::ForDown(k);
    for (int leaf = 0; leaf < borders.num_leaves; ++leaf)
      ASSERT_LT(borders.begin[leaf], borders.begin[leaf + 1]) << k;
    ASSERT_EQ(borders.begin[borders.num_leaves], k);
  }
}

TEST(LeafBordersTest, OutputLeavesAreWholeHeads) {
  EXPECT_EQ(Begins(LeafBorders::ForOutput(9, 64)),
            (Borders{0, 64, 128, 192, 256, 320, 384, 448, 576}));
  EXPECT_EQ(Begins(LeafBorders::ForOutput(3, 16)), (Borders{0, 16, 32, 48}));
  EXPECT_EQ(Begins(LeafBorders::ForOutput(16, 128))[1], 256);
}

template <typename T>
void ExpectPacked(int k) {
  std::mt19937 rng(k);
  std::vector<float> weights(kPanelColumns * k);
  for (float& w : weights) w = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) * 0.01f;
  weights[0] = 1e-40f;
  weights[weights.size() - 1] = std::numeric_limits<float>::infinity();
  const float* rows[kPanelColumns];
  for (int c = 0; c < kPanelColumns; ++c) rows[c] = c % 7 == 5 ? nullptr : &weights[c * k];
  const int pairs = (k + 1) / 2;
  std::vector<T> tile(pairs * kPanelColumns * 2);
  testing::PackRounded(sizeof(T) == 2 ? tensor::DType::kBF16 : tensor::DType::kF32, k, rows,
                       reinterpret_cast<std::byte*>(tile.data()));
  for (int pair = 0; pair < pairs; ++pair) {
    for (int c = 0; c < kPanelColumns; ++c) {
      for (int i = 0; i < 2; ++i) {
        const int at = 2 * pair + i;
        const T want = rows[c] != nullptr && at < k ? tensor::RoundTo<T>(rows[c][at]) : T{};
        ASSERT_EQ(std::memcmp(&want, &tile[(pair * kPanelColumns + c) * 2 + i], sizeof(T)), 0)
            << k << " " << pair << " " << c;
      }
    }
  }
}

TEST(PackTileTest, PairsAlongKWithZeroPadding) {
  for (const int k : {1, 2, 7, 8, 9, 16, 31, 64, 100}) {
    ExpectPacked<tensor::BF16>(k);
    ExpectPacked<float>(k);
  }
}

TEST(PackTileTest, ChunksInTheOrderOfTensorCores) {
  for (const int k : {1, 7, 8, 64, 100}) {
    std::vector<std::vector<tensor::BF16>> columns(kPanelColumns);
    const tensor::BF16* rows[kPanelColumns] = {};
    for (int c = 0; c < kPanelColumns; ++c) {
      auto& column = columns[static_cast<size_t>(c)];
      for (int i = 0; i < k; ++i) column.push_back({static_cast<uint16_t>((c + 1) * 256 + i)});
      if (c != 5) rows[c] = column.data();
    }
    PackedWeight weight{.packed = PackedForm::kCuda, .k = k};
    weight.leaves = LeafBorders::Single(k);
    const auto bytes = static_cast<size_t>(weight.ExpandedTileBytes(0));
    ASSERT_EQ(bytes, static_cast<size_t>((k + 63) / 64 * 8192));
    std::vector<std::byte> tile(bytes, std::byte{0xFF});
    PackTile(PackedForm::kCuda, k, rows, tile.data());
    for (int c = 0; c < kPanelColumns; ++c) {
      EXPECT_EQ(ColumnOfChunk(ChunkRow(c)), c);
      for (int i = 0; i < (k + 63) / 64 * 64; ++i) {
        uint16_t found;
        std::memcpy(&found,
                    &tile[static_cast<size_t>(i / 64 * 8192 + InChunk(ChunkRow(c), i % 64))],
                    sizeof found);
        const int expected = c != 5 && i < k ? (c + 1) * 256 + i : 0;
        ASSERT_EQ(found, expected) << "column " << c << ", element " << i << " of " << k;
      }
    }
  }
}

}  // namespace
}  // namespace forebay::kernels
