#include "layout/stream_choice.h"

#include <gtest/gtest.h>

namespace forebay::layout {
namespace {

TEST(StreamChoice, Table) {
  struct Case {
    const char* what;
    std::vector<StreamTrial> trials;
    int32_t fastest, hidden;
  };
  const Case cases[] = {
      {"more is faster until copies show", {{0, 100, 0}, {10, 120, 0}, {20, 130, .2}}, 20, 10},
      {"a batch that no longer pays", {{0, 100, 0}, {10, 101, 0}, {20, 101.5, 0}}, 0, 20},
      {"the link is too slow", {{0, 100, 0}, {10, 60, .5}, {20, 40, .7}}, 0, 0},
      {"in between", {{0, 100, 0}, {10, 110, .01}, {20, 105, .1}}, 10, 10},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(ChooseFastest(each.trials).blocks, each.fastest) << each.what;
    EXPECT_EQ(ChooseHidden(each.trials).blocks, each.hidden) << each.what;
  }
}

}  // namespace
}  // namespace forebay::layout
