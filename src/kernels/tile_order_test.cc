// The orders of class `amx`, and the trial that finds a machine's.
#include "kernels/tile_order.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cstdio>
#include <cstring>

#include "base/rng.h"
#include "kernels/linear_sets.h"
#include "kernels/ref/tile.h"
#include "kernels/testing/tile_sets.h"

namespace forebay::kernels {
namespace {

using tensor::BF16;
using tensor::ToBF16;
using enum TileOrder;

// Steps whose result tells the orders apart: 2^24 takes no single 1.
TEST(TileStepTest, AddsInItsOrder) {
  BF16 ones[kTileDepth], x[kTileDepth] = {};
  for (BF16& one : ones) one = ToBF16(1);
  EXPECT_EQ(ref::TileStep(kSplit, ones, ones, 0x1p24f), 0x1p24f + 32);
  EXPECT_EQ(ref::TileStep(kEvenFirst, ones, ones, 0x1p24f), 0x1p24f);
  EXPECT_EQ(ref::TileStep(kOddFirst, ones, ones, 0x1p24f), 0x1p24f);
  x[0] = ToBF16(1);
  x[1] = ToBF16(-0x1p24f);
  EXPECT_EQ(ref::TileStep(kEvenFirst, x, ones, 0x1p24f), 0);
  EXPECT_EQ(ref::TileStep(kOddFirst, x, ones, 0x1p24f), 1);
  x[0] = ToBF16(0x1p24f);  // chains of their own: 2^24 and 1, 1 and -2^24
  x[1] = x[2] = ToBF16(1);
  x[3] = ToBF16(-0x1p24f);
  EXPECT_EQ(ref::TileStep(kSplit, x, ones, 0), 1);
  EXPECT_EQ(ref::TileStep(kEvenFirst, x, ones, 0), 0);
}

// Columns that fill vectors and columns that do not are what each is alone.
TEST(TileStepTest, ColumnsTogetherAreThemselves) {
  constexpr int kColumns = 35;
  base::Rng rng(3);
  const auto value = [&] { return static_cast<float>(rng.Uniform() - 0.5); };
  BF16 x[kTileDepth], w[kTileDepth * kColumns];
  for (BF16& each : x) each = ToBF16(value());
  for (BF16& each : w) each = ToBF16(value());
  for (const TileOrder order : kTileOrders) {
    float sums[kColumns], alone[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      BF16 column[kTileDepth];
      for (int k = 0; k < kTileDepth; ++k) column[k] = w[(k / 2 * kColumns + c) * 2 + k % 2];
      sums[c] = value();
      alone[c] = ref::TileStep(order, x, column, sums[c]);
    }
    ref::AddTileStep(order, x, w, kColumns, sums);
    EXPECT_EQ(std::memcmp(sums, alone, sizeof(sums)), 0) << NumericsClassOf(order);
  }
}

TEST(FindTileOrderTest, FindsEachOrder) {
  if (!testing::HasModelTiles()) GTEST_SKIP() << "model tiles need AVX2";
  for (const TileOrder order : kTileOrders) {
    EXPECT_EQ(FindTileOrder(ref::TileLinear(order)), order) << NumericsClassOf(order);
    EXPECT_EQ(FindTileOrder(amx::LinearOnModelTiles(order)), order) << NumericsClassOf(order);
  }
}

TEST(FindTileOrderTest, RefusesWhatFitsNoOrder) {
  // One output of a thousand, in its last bit.
  EXPECT_EQ(FindTileOrder([](const LinearArgs& args, const device::WorkerContext& context) {
              ref::TileLinear(kSplit)(args, context);
              if (args.rows == 33) args.y[1000 * sizeof(float)] ^= std::byte{1};
            }),
            kUnknown);
  // Denormals that are not flushed.
  EXPECT_EQ(FindTileOrder([](const LinearArgs& args, const device::WorkerContext& context) {
              const unsigned saved = _mm_getcsr();
              _mm_setcsr(saved & ~0x8040u);
              ref::TileLinear(kSplit)(args, context);
              _mm_setcsr(saved);
            }),
            kUnknown);
}

TEST(FindTileOrderTest, ThisMachine) {
  const TileOrder order = HardwareTileOrder();
  if (order == kUnknown) {
    const base::Status status = ChooseKernels("amx").status();
    EXPECT_EQ(status.code(), kIsaUnavailable);
    EXPECT_NE(status.message().find("AMX tiles"), std::string::npos) << status.message();
    GTEST_SKIP() << status.message();
  }
  std::printf("tiles of this machine: %s\n", NumericsClassOf(order));
  EXPECT_STREQ((*ChooseKernels("amx"))->numerics_class, NumericsClassOf(order));
  EXPECT_EQ(*ChooseKernels("auto"), *ChooseKernels("amx"));
}

}  // namespace
}  // namespace forebay::kernels
