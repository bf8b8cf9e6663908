#include "base/units.h"

#include <gtest/gtest.h>

namespace forebay::base {
namespace {

TEST(ParseBytes, UnderstandsSuffixes) {
  EXPECT_EQ(*ParseBytes("65536"), 65536u);
  EXPECT_EQ(*ParseBytes("8GiB"), 8 * kGiB);
  EXPECT_EQ(*ParseBytes("1.5gi"), kGiB + kGiB / 2);
  EXPECT_EQ(*ParseBytes("300MB"), 300'000'000u);
  EXPECT_EQ(*ParseBytes("2k"), 2000u);
}

TEST(ParseBytes, RefusesNonsense) {
  for (const char* text : {"", "GiB", "-1", "1xB", "1GiBs", "nan", "1e30"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
}

TEST(Format, ReadsLikeAPersonWroteIt) {
  EXPECT_EQ(FormatBytes(1610612736), "1.50 GiB");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatDuration(0.53), "0.5s");
  EXPECT_EQ(FormatDuration(75.3), "1m 15s");
  EXPECT_EQ(FormatDuration(7265), "2h 1m");
}

}  // namespace
}  // namespace forebay::base
