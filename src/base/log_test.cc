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

TEST(PrintableTest, NamesAreQuotedEscapedAndCutOnTheirOwn) {
  EXPECT_EQ(Quoted("plain"), "\"plain\"");
  EXPECT_EQ(Quoted(""), "\"\"");
  EXPECT_EQ(Quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\x0a\"");
  EXPECT_EQ(Quoted("12345", 5), "\"12345\"");
  EXPECT_EQ(Quoted("123456", 5), "\"12345...\"");
  // Neither a character nor an escape is cut in two.
  EXPECT_EQ(Quoted("na\xC3\xAFve", 3), "\"na...\"");
  EXPECT_EQ(Quoted("ab\x1b", 5), "\"ab...\"");
  const std::string long_one = Quoted(std::string(100'000, 'x'));
  EXPECT_EQ(long_one.size(), kMostQuoted + 5);
  EXPECT_EQ(Printable(Quoted("\x1b[2J\xff")), Quoted("\x1b[2J\xff")) << "once is enough";
}

TEST(PrintableTest, NamesThatReadAsNamesStayAsTheyAre) {
  for (const std::string name : {"model.layers.0.mlp.up_proj.weight", "gpt-2", "a/b:c", "-0.5"})
    EXPECT_EQ(ShownName(name), name);
  EXPECT_EQ(ShownName(""), "\"\"");
  EXPECT_EQ(ShownName("a b"), "\"a b\"");
  EXPECT_EQ(ShownName("x; expected y"), "\"x; expected y\"");
  EXPECT_EQ(ShownName("\x1b[2J"), "\"\\x1b[2J\"");
  EXPECT_EQ(ShownName("123456", 5), "\"12345...\"");
}

}  // namespace
}  // namespace forebay::base
