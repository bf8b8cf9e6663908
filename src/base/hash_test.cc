#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace forebay::base {
namespace {

TEST(Hash, SeedAndLengthCount) {
  EXPECT_NE(HashBytes("abc"), HashBytes("abc", 1));
  EXPECT_NE(HashBytes(std::string(8, '\0')), HashBytes(std::string(16, '\0')));
  EXPECT_EQ(HashBytes("twelve bytes"), HashBytes("twelve bytes"));
}

}  // namespace
}  // namespace forebay::base
