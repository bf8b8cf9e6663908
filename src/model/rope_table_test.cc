#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/rope.h"

namespace forebay::model {
namespace {

// Position by position, as the library has it.
void ExpectTable(const RopeSpec& rope, int64_t positions) {
  const auto half = static_cast<int64_t>(rope.inv_freq.size());
  std::vector<float> cos_table(positions * half), sin_table(positions * half);
  FillRope(rope, positions, 2, cos_table.data(), sin_table.data());
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * rope.inv_freq[i];
      ASSERT_EQ(cos_table[p * half + i], static_cast<float>(std::cos(angle) * rope.cos_sin_scale))
          << p << " " << i;
      ASSERT_EQ(sin_table[p * half + i], static_cast<float>(std::sin(angle) * rope.cos_sin_scale))
          << p << " " << i;
    }
  }
}

TEST(RopeTable, IsTheLibrarysRoundedOnce) {
  for (const double theta : {1e4, 1e6}) {
    RopeSpec rope = MakeRope({.theta = theta}, 64, 64);
    ExpectTable(rope, 1000);
    rope.cos_sin_scale = 1.2079442f;
    ExpectTable(rope, 20'000);
  }
}

}  // namespace
}  // namespace forebay::model
