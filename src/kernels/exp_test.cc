#include "kernels/exp.h"

#include <gtest/gtest.h>

#include <limits>

namespace forebay::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(ExpTest, WithinOneUlp) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x42B17218; bits += 1013) {
    for (const float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
      if (x < ExpConstants::kLowest) continue;
      const double exact = std::exp(static_cast<double>(x));
      const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
      worst = std::max(worst, std::abs(Exp(x) - exact) / ulp);
    }
  }
  EXPECT_LT(worst, 1.0);
  EXPECT_GT(worst, 0.3);
}

TEST(ExpTest, Ends) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-kInfinity), 0.0f);
  EXPECT_EQ(Exp(std::nextafter(ExpConstants::kLowest, -kInfinity)), 0.0f);
  EXPECT_GE(Exp(ExpConstants::kLowest), std::numeric_limits<float>::min());
  EXPECT_LT(Exp(ExpConstants::kHighest), kInfinity);
  EXPECT_EQ(Exp(std::nextafter(ExpConstants::kHighest, kInfinity)), kInfinity);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(SiluTest, Ends) {
  EXPECT_EQ(Silu(0.0f), 0.0f);
  EXPECT_EQ(Silu(100.0f), 100.0f);
  EXPECT_EQ(Silu(-200.0f), 0.0f);
  EXPECT_NEAR(Silu(1.0f), 0.7310586, 1e-7);
}

TEST(ErfGeluTest, IsNearTheErrorFunctions) {
  for (float x = -12; x < 12; x += 0.0037f) {
    const double exact = 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    EXPECT_NEAR(ErfGelu(x), exact, 2e-7 * (1 + std::abs(x))) << x;
  }
  EXPECT_EQ(ErfGelu(0.0f), 0.0f);
  EXPECT_EQ(ErfGelu(100.0f), 100.0f);
  EXPECT_EQ(ErfGelu(-100.0f), 0.0f);
}

}  // namespace
}  // namespace forebay::kernels
