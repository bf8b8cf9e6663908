#include "sample/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "sample/testing/rows.h"

namespace forebay::sample {
namespace {

TEST(SoftmaxTest, ExpIsCloseAndDefinedAtItsEnds) {
  double worst = 0;
  for (double x = 0; x >= -708; x -= 0.00317)
    worst = std::max(worst, std::fabs(Exp(x) / std::exp(x) - 1));
  EXPECT_LT(worst, 3e-10);
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_GE(Exp(-708.0), std::numeric_limits<double>::min());
  EXPECT_EQ(Exp(-708.001), 0.0);
  EXPECT_EQ(Exp(-1e30), 0.0);
  EXPECT_EQ(Exp(-static_cast<double>(kInf)), 0.0);
  EXPECT_EQ(Exp(static_cast<double>(kNan)), 0.0);
}

TEST(SoftmaxTest, LogIsClose) {
  base::Rng rng(1);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::exp(rng.Uniform() * 80 - 40);
    ASSERT_NEAR(Log(x), std::log(x), 1e-15 * std::max(1.0, std::fabs(std::log(x)))) << x;
  }
  EXPECT_EQ(Log(1.0), 0.0);
}

// Bits that every machine must give (computed apart, in Python): a change of these changes results
// of seeded jobs.
TEST(SoftmaxTest, PinnedBits) {
  EXPECT_EQ(Exp(-1.0), 0x1.78b563635cc05p-2);
  EXPECT_EQ(Exp(-33.3), 0x1.f165bb9b59d7bp-49);
  EXPECT_EQ(Log(10.0), 0x1.26bb1bbb55515p+1);
}

TEST(SoftmaxTest, SumsInTheStatedOrder) {
  base::Rng rng(2);
  for (const size_t size : {1, 15, 16, 17, 1024, 1025, 3000}) {
    std::vector<float> row(size);
    for (float& x : row) x = static_cast<float>(rng.Uniform() * 20 - 10);
    if (size > 16) row[3] = kNan, row[9] = -kInf;
    const float max = RowMax(row);
    double total = 0;
    for (size_t begin = 0; begin < size; begin += 1024) {
      double lanes[16] = {};
      for (size_t i = begin; i < std::min(size, begin + 1024); ++i)
        lanes[i % 16] += Exp((row[i] - static_cast<double>(max)) * 1.25);
      for (int width : {8, 4, 2, 1}) {
        for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
      }
      total += lanes[0];
    }
    std::vector<double> sums;
    EXPECT_EQ(SumExp(row, max, 1.25, &sums), total);
    EXPECT_EQ(sums.size(), (size + 1023) / 1024);
  }
}

TEST(SoftmaxTest, AllWidthsGiveTheSameBits) {
  base::Rng rng(3);
  for (const size_t size : {7, 16, 1000, 1024}) {
    std::vector<float> row(size);
    for (float& x : row) x = static_cast<float>(rng.Uniform() * -30);
    row[5] = kNan;
    for (const RowLoops& loops : AllRowLoops()) {
      const double sum = AllRowLoops().back().chunk_sum({row, 0.5, 1.7});
      EXPECT_EQ(loops.chunk_sum({row, 0.5, 1.7}), sum) << size;
      std::vector<double> weights(size);
      EXPECT_EQ(loops.weigh_chunk({row, 0.5, 1.7}, weights.data()), sum) << size;
      const double borders[kBorders] = {-1, -0.5, 0.125, 2};
      double sums[kBorders], expected[kBorders] = {};
      loops.sums_up_to(row, weights.data(), borders, sums);
      for (size_t i = 0; i < size; ++i) {
        EXPECT_EQ(weights[i], Exp((row[i] - 0.5) * 1.7)) << i;
        for (int b = 0; b < kBorders; ++b) expected[b] += row[i] <= borders[b] ? weights[i] : 0;
      }
      for (int b = 0; b < kBorders; ++b)
        EXPECT_NEAR(sums[b], expected[b], 1e-12 * static_cast<double>(size)) << size;
      std::vector<double> cleared = weights;
      loops.clear_below(row, 0.125, cleared.data());
      for (size_t i = 0; i < size; ++i)
        EXPECT_EQ(cleared[i], row[i] >= 0.125 ? weights[i] : 0) << i;
    }
  }
}

TEST(SoftmaxTest, ArgMaxIsTheLowestOfTheGreatest) {
  std::vector<float> row(5000, -3.0f);
  row[17] = kNan;
  row[4100] = row[4099] = row[2050] = 7;
  EXPECT_EQ(ArgMax(row), 2050);
  EXPECT_EQ(RowMax(row), 7);
  row[4999] = 8;
  EXPECT_EQ(ArgMax(row), 4999);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, -kInf, kNan}), 0);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, -1, kInf}), 2);
}

}  // namespace
}  // namespace forebay::sample
