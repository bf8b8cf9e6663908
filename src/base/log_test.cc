#include "base/log.h"

#include <gtest/gtest.h>

namespace forebay::base {
namespace {

TEST(PrintableTest, TextStaysAsItIs) {
  for (const std::string text :
       {"", "plain", "na\xC3\xAFve \xE6\xB0\xB4 \xF0\x9F\x8C\x8A", "a \\ b"})
    EXPECT_EQ(Printable(text), text);
}

TEST(PrintableTest, WhatSteersATerminalIsEscaped) {
  EXPECT_EQ(Printable("\x1b]0;title\x07\x1b[2J"), "\\x1b]0;title\\x07\\x1b[2J");
  EXPECT_EQ(Printable("a\nforebay: done\r\t\x7f"), "a\\x0aforebay: done\\x0d\\x09\\x7f");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "31m"),
            "\\u{9b}31m");
  EXPECT_EQ(Printable("\xE2\x80\xAE"
                      "abc"),
            "\\u{202e}abc");
  EXPECT_EQ(Printable(std::string_view("\0", 1)), "\\x00");
}

TEST(PrintableTest, BytesThatAreNoTextAreEscaped) {
  EXPECT_EQ(Printable("\xff\xC3(\xE6\xB0"), "\\xff\\xc3(\\xe6\\xb0");
}

TEST(PrintableTest, LongTextLosesItsMiddle) {
  const std::string printed = Printable("begin " + std::string(100'000, 'x') + " end [code]");
  EXPECT_LE(printed.size(), kMostPrinted);
  EXPECT_TRUE(printed.starts_with("begin xxx"));
  EXPECT_TRUE(printed.ends_with("xxx end [code]"));
  EXPECT_LE(Printable(std::string(5000, '\xff')).size(), kMostPrinted);
}

}  // namespace
}  // namespace forebay::base
