#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "tensor/bf16.h"

namespace forebay::tensor {
namespace {

TEST(BF16, RoundsToNearestEven) {
  EXPECT_EQ(ToBF16(1.0f).bits, 0x3F80);
  // a tie goes to the even neighbour below
  EXPECT_EQ(ToBF16(1.0f + 0x1p-8f).bits, 0x3F80);
  EXPECT_EQ(ToBF16(1.0f + 0x1p-7f + 0x1p-8f).bits, 0x3F82);  // and to the even one above
  EXPECT_EQ(ToBF16(1.0f + 0x1p-8f + 0x1p-20f).bits, 0x3F81);
  EXPECT_EQ(ToBF16(-0x1p-130f).bits, 0x8000);  // denormals are flushed
  EXPECT_EQ(ToBF16(INFINITY).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(ToFloat(ToBF16(NAN))));
  EXPECT_EQ(ToBF16(3.4028235e38f).bits, 0x7F80);  // rounds up to infinity
}

TEST(Tensor, CountsBytes) {
  EXPECT_EQ(BytesOf(DType::kQ4_1, 64), 40u);
  const TensorBuffer buffer(DType::kBF16, {3, 5});
  EXPECT_EQ(buffer.view().bytes(), 30u);
  EXPECT_EQ(buffer.view().shape.ToString(), "[3, 5]");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.view().data) % 64, 0u);
}

TEST(BF16, ManyAreRoundedAsOne) {
  std::mt19937 rng(1);
  std::vector<float> values(32 * 1024 + 5);
  for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(rng()));
  std::vector<BF16> rounded(values.size());
  RoundToBF16(values.data(), static_cast<int64_t>(values.size()), rounded.data());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(rounded[i], ToBF16(values[i])) << values[i];
}

}  // namespace
}  // namespace forebay::tensor
