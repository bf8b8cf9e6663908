#include "base/marked_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::base {
namespace {

using ::testing::HasSubstr;

std::string Said(std::string_view page) {
  return FillMarks(page, "fish", {{"cod", "c\n"}, {"eel", "e\n"}}).status().message();
}

TEST(MarkedPage, TablesStandBetweenTheirMarks) {
  const std::string_view page =
      "a\n<!-- fish: eel -->\nold\n<!-- end -->\nb\n<!-- fish: cod -->\n<!-- end -->\n<!-- bird: x "
      "-->\n";
  EXPECT_EQ(*FillMarks(page, "fish", {{"cod", "c\n"}, {"eel", "e\n"}}),
            "a\n<!-- fish: eel -->\ne\n<!-- end -->\nb\n<!-- fish: cod -->\nc\n<!-- end -->\n"
            "<!-- bird: x -->\n");
}

TEST(MarkedPage, MarksAreChecked) {
  const std::string cod = "<!-- fish: cod -->\n<!-- end -->\n";
  EXPECT_THAT(Said("<!-- fish: crab -->\n<!-- end -->"), HasSubstr("no fish \"crab\""));
  EXPECT_THAT(Said("<!-- fish: cod -->\n"), HasSubstr("\"cod\" has no end mark"));
  EXPECT_THAT(Said("<!-- fish: cod"), HasSubstr("cut off"));
  EXPECT_THAT(Said(cod), HasSubstr("no mark \"<!-- fish: eel -->\""));
  EXPECT_THAT(Said(cod + cod), HasSubstr("two marks"));
}

}  // namespace
}  // namespace forebay::base
