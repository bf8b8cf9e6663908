#include "schedule/shift_table.h"

#include <gtest/gtest.h>

#include <limits>

namespace forebay::schedule {
namespace {

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

StepMode At(const ShiftTable& table, int64_t rows, int64_t step = 0) {
  return table.Shift({.degrees = {4, 2}}, rows, step);
}
StepMode Mode(int sp, int tp) { return {.degrees = {sp, tp}}; }

TEST(ShiftTable, WithoutEntriesTheModeStays) { EXPECT_EQ(At({}, 100), Mode(4, 2)); }

// A step of exactly the threshold's rows is small; one more is large.
TEST(ShiftTable, MoreRowsThanTheThresholdAreMany) {
  const ShiftTable table{{{256, {1, 8}}, {kAny, {8, 1}}}};
  EXPECT_EQ(At(table, 1), Mode(1, 8));
  EXPECT_EQ(At(table, 256), Mode(1, 8));
  EXPECT_EQ(At(table, 257), Mode(8, 1));
  EXPECT_EQ(At(table, 100'000), Mode(8, 1));
}

TEST(ShiftTable, MiddleModesHaveTheirRange) {
  const ShiftTable table{{{96, {1, 8}}, {280, {2, 4}}, {900, {4, 2}}, {kAny, {8, 1}}}};
  for (const auto& [rows, sp] : {std::pair{96, 1}, {97, 2}, {280, 2}, {281, 4}, {900, 4}, {901, 8}})
    EXPECT_EQ(At(table, rows).degrees.sp, sp) << rows;
}

// What the table says depends on the step's rows and on nothing before it.
TEST(ShiftTable, TrialsFlipWhateverRowsSay) {
  const ShiftTable table{{{kAny, {8, 1}}, {kAny, {4, 2}}, {kAny, {1, 8}}}, 3};
  for (int64_t step = 0; step < 20; ++step) {
    const int expected[] = {8, 4, 1};
    EXPECT_EQ(At(table, 1 + step % 2 * 1000, step).degrees.sp, expected[step / 3 % 3]) << step;
  }
}

TEST(ShiftTable, TrialsDrawModes) {
  const ShiftTable table{{{kAny, {8, 1}}, {kAny, {4, 2}}, {kAny, {1, 8}}}, kFlipAtRandom};
  int steps[9] = {}, switches = 0;
  for (int64_t step = 0; step < 300; ++step) {
    ++steps[At(table, 1, step).degrees.sp];
    switches += step > 0 && At(table, 1, step).degrees.sp != At(table, 1, step - 1).degrees.sp;
  }
  for (const int sp : {1, 4, 8}) EXPECT_NEAR(steps[sp], 100, 30) << sp;
  EXPECT_NEAR(switches, 200, 30);
}

// Ranks that share weights along sp own what they read with tp alone.
TEST(ShiftTable, APoolIsPulledWhereRowsAreCutAlone) {
  ShiftTable table{{{64, {1, 8}}, {kAny, {8, 1}}}};
  const StepMode pulls{.ffn = FfnMode::kPull, .degrees = {8, 1}};
  EXPECT_EQ(table.Shift(pulls, 9, 0).ffn, FfnMode::kPull);
  table.pooled = true;
  EXPECT_EQ(table.Shift(pulls, 9, 0).ffn, FfnMode::kLocal);
  EXPECT_EQ(table.Shift(pulls, 65, 0).ffn, FfnMode::kPull);
}

}  // namespace
}  // namespace forebay::schedule
