// Classes `amx_*_p1024`: attention against sums in double, and on tiles, models of them where the
// machine has none, against the oracle by memcmp, however rows are cut.
#include "kernels/tile_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/testing/attention_problem.h"
#include "kernels/testing/distance.h"
#include "kernels/testing/tile_sets.h"

namespace forebay::kernels {
namespace {

using kernels::testing::AttentionProblem;
using kernels::testing::AttentionShape;
using kernels::testing::Distance;
using kernels::testing::SequenceSpec;
using kernels::testing::Team;
using tensor::BF16;

constexpr int32_t kWhole = 1 << 20;

bool SameBytes(const std::vector<std::vector<BF16>>& a, const std::vector<std::vector<BF16>>& b) {
  for (size_t s = 0; s < a.size(); ++s) {
    if (std::memcmp(a[s].data(), b[s].data(), a[s].size() * sizeof(BF16)) != 0) return false;
  }
  return true;
}

class TileAttentionTest : public ::testing::Test {
 protected:
  // The oracle against double, and tiles against the oracle: of each order in turn, or of all.
  void Check(const AttentionShape& shape, const std::vector<SequenceSpec>& sequences,
             const std::vector<int32_t>& chunks = {kWhole}) {
    SCOPED_TRACE(::testing::Message() << shape.heads << "/" << shape.kv_heads << " heads of "
                                      << shape.head_dim << ", " << shape.values() << ", window "
                                      << shape.window << ", first length " << sequences[0].length);
    const TileOrder order = kTileOrders[checks_++ % std::size(kTileOrders)];
    const KernelSet oracle = kernels::testing::OracleOfParts(order);
    AttentionProblem<BF16> problem(shape, sequences);
    const auto expected = problem.Run(oracle, teams_[1]);
    for (size_t s = 0; s < sequences.size(); ++s) {
      const double wide = std::sqrt(std::max(1.0, shape.head_dim / 256.0));
      EXPECT_LT(Distance(expected[s], problem.Naive(s)), wide * 0x1p-8) << "sequence " << s;
    }
    for (const KernelSet& tiles : Tiles(order)) {
      for (const int32_t chunk : chunks) {
        for (const int workers : {1, 2}) {
          if (chunk < 100 && workers == 2) continue;
          problem.Permute(static_cast<uint64_t>(workers));
          EXPECT_TRUE(SameBytes(problem.Run(tiles, teams_[workers - 1], chunk), expected))
              << tiles.numerics_class << ", chunk " << chunk << ", " << workers << " workers";
        }
      }
    }
  }

  // What computes the class of this order on this machine.
  static std::vector<KernelSet> Tiles(TileOrder order) {
    std::vector<KernelSet> sets;
    if (kernels::testing::HasModelTiles())
      sets.push_back(kernels::testing::ModelPartKernels(order));
    if (HardwareTileOrder() == order) sets.push_back(**ChooseKernels("amx", PartClassOf(order)));
    return sets;
  }

  Team teams_[2] = {Team(1), Team(2)};
  size_t checks_ = 0;
};

TEST_F(TileAttentionTest, HeadDimsAndGroups) {
  for (const int32_t head_dim : {2, 24, 64, 80, 96, 128, 256}) {
    for (const int32_t group : {1, 3, 8})
      Check({2 * group, 2, head_dim}, {{0, 45}, {70, 71}, {38, 39}});
  }
  for (const int32_t group : {2, 4, 5, 6, 7, 9, 11, 16, 17})
    Check({group, 1, 32}, {{0, 21}, {60, 65}});
  Check({71, 1, 64}, {{0, 5}, {33, 34}});
}

TEST_F(TileAttentionTest, ContextsAndParts) {
  for (const int32_t context : {1, 32, 33, 1023, 1024, 1025, 2060})
    Check({4, 2, 32}, {{context - 1, context}, {std::max(0, context - 20), context}}, {kWhole, 7});
  // Workers share the parts of few rows.
  for (const AttentionShape shape : {AttentionShape{6, 3, 16}, {16, 8, 16}, {4, 2, 24, 2500}}) {
    Check(shape, {{3299, 3300}});
    Check(shape, {{2090, 2100}, {1030, 1031}, {1020, 1027}}, {kWhole, 3});
  }
}

TEST_F(TileAttentionTest, Reaches) {
  for (const int32_t window : {1, 31, 33, 100, 1024})
    Check({4, 2, 32, window}, {{0, 80}, {1000, 1040}, {2040, 2060}}, {kWhole, 7});
  for (const int32_t chunk : {1, 33, 1024})
    Check({.heads = 2, .kv_heads = 2, .head_dim = 16, .chunk = chunk}, {{0, 80}, {1000, 1040}},
          {kWhole, 7});
  Check({.heads = 4, .kv_heads = 2, .head_dim = 32, .ahead = base::Reach::kAllAhead},
        {{0, 80}, {0, 33}});
}

TEST_F(TileAttentionTest, CapsAndSinks) {
  for (const auto& [cap, sinks] : {std::pair{2.0f, false}, {0.0f, true}, {2.0f, true}}) {
    Check({.heads = 6, .kv_heads = 2, .head_dim = 40, .score_cap = cap, .sinks = sinks},
          {{0, 45}, {70, 71}, {1000, 1040}, {2040, 2050}}, {kWhole, 7});
  }
}

TEST_F(TileAttentionTest, ValuesOfOtherWidthsAndInKeys) {
  for (const int32_t value_dim : {2, 16, 40, 64}) {
    for (const bool in_keys : {false, true}) {
      Check({.heads = 6,
             .kv_heads = 2,
             .head_dim = in_keys ? value_dim + 8 : 24,
             .value_dim = value_dim,
             .values_in_keys = in_keys},
            {{0, 45}, {70, 71}, {1020, 1027}}, {kWhole, 7});
    }
  }
  Check({.heads = 3, .kv_heads = 3, .head_dim = 192, .value_dim = 128}, {{0, 40}, {99, 100}});
  Check({.heads = 8, .kv_heads = 1, .head_dim = 576, .value_dim = 512, .values_in_keys = true},
        {{0, 4}, {1030, 1031}});
}

// So many single rows that an item takes several KV heads, beside rows of a prompt.
TEST_F(TileAttentionTest, ManySequences) {
  std::vector<SequenceSpec> sequences = {{60, 70}, {1030, 1031}};
  for (int32_t length = 1; length <= 66; ++length) sequences.push_back({length - 1, length});
  for (const AttentionShape shape :
       {AttentionShape{16, 8, 32}, {9, 3, 64}, {10, 5, 24}, {4, 4, 16, 40}})
    Check(shape, sequences);
}

// A value that is not finite reaches the rows that see it, and no other beside them in a tile.
TEST_F(TileAttentionTest, ValuesThatAreNotFiniteStayWithWhoSeesThem) {
  for (const TileOrder order : kTileOrders) {
    for (const float value :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      for (const int32_t at : {3, 40, 47}) {
        AttentionProblem<BF16> problem({4, 2, 32}, {{0, 50}});
        problem.SetValue(0, at, tensor::ToBF16(value));
        const auto expected = problem.Run(kernels::testing::OracleOfParts(order), teams_[0]);
        const int64_t row = 4 * 32;
        EXPECT_TRUE(std::isfinite(tensor::ToFloat(expected[0][(at - 1) * row])));
        EXPECT_FALSE(std::isfinite(tensor::ToFloat(expected[0][at * row])));
        for (const KernelSet& tiles : Tiles(order)) {
          EXPECT_TRUE(SameBytes(problem.Run(tiles, teams_[0]), expected)) << at;
          EXPECT_TRUE(SameBytes(problem.Run(tiles, teams_[0], 7), expected)) << at;
        }
      }
    }
  }
}

TEST(PartClassTest, IsChosenByNameAlone) {
  for (const TileOrder order : kTileOrders) {
    const auto set = ChooseKernels("ref", PartClassOf(order));
    ASSERT_TRUE(set.ok()) << set.status().ToString();
    EXPECT_STREQ((*set)->numerics_class, PartClassOf(order));
    EXPECT_EQ((*set)->isa, Isa::kRef);
    const bool here = HardwareTileOrder() == order;
    EXPECT_EQ((*ChooseKernels("auto", PartClassOf(order)))->isa, here ? Isa::kAmx : Isa::kRef);
  }
  for (const KernelSet* set : AvailableKernels())
    EXPECT_FALSE(std::string_view(set->numerics_class).ends_with("_p1024")) << set->name;
  EXPECT_EQ(ChooseKernels("avx2", "amx_split_p1024").ok(), false);
}

}  // namespace
}  // namespace forebay::kernels
