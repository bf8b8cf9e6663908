#include "schedule/packing.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace forebay::schedule {
namespace {

TEST(PackingTest, MissingBlocksAreThoseBeyondTheReservedOnes) {
  for (const int32_t block_tokens : {1, 3, 32}) {
    const Limits limits{.block_tokens = block_tokens};
    for (int64_t tokens = 0; tokens < 100; ++tokens) {
      for (int64_t reserved = 0; reserved < 6; ++reserved) {
        EXPECT_EQ(MissingBlocks(tokens, reserved, limits),
                  std::max<int64_t>(0, BlocksFor(tokens, limits) - reserved))
            << tokens << " in blocks of " << block_tokens << ", " << reserved << " reserved";
      }
    }
  }
}

}  // namespace
}  // namespace forebay::schedule
