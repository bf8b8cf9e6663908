#include "device/touch_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace forebay::device {
namespace {

TEST(TouchPages, WritesNoFurtherThanAsked) {
  constexpr std::byte kBefore{7};
  std::vector<std::byte> memory((5 << 20) + 3, kBefore);
  const Region region{.data = memory.data(), .bytes = memory.size()};
  TouchPages(region, 5000, 2);
  EXPECT_EQ(std::ranges::count(memory, std::byte{0}), 2);
  EXPECT_EQ(memory[0], std::byte{0});
  EXPECT_EQ(memory[4096], std::byte{0});
  TouchPages(region, UINT64_MAX, 2);
  for (size_t page = 0; page < memory.size(); page += 4096) ASSERT_EQ(memory[page], std::byte{0});
  EXPECT_EQ(memory.back(), kBefore);
}

}  // namespace
}  // namespace forebay::device
