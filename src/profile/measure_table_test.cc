#include "profile/measure_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace forebay::profile {
namespace {

TableSpec Spec(std::function<double(const cost::Point&)> seconds) {
  TableSpec spec;
  spec.op = cost::TableOp::kLinear;
  spec.axes = {{{1, 4, 16, 64}, {64, 256, 1024}, {32, 512}}};
  spec.grain = {1, 64, 0};
  spec.seconds = std::move(seconds);
  return spec;
}

TEST(MeasureTable, VisitsEveryPointOnceAndHoldsOthersOut) {
  std::map<cost::Point, int> visits;
  const auto table = MeasureTable(Spec([&](const cost::Point& p) {
                                    ++visits[p];
                                    return 1e-9 * p[0] * p[1] * p[2];
                                  }),
                                  10);
  for (double a : {1, 4, 16, 64}) {
    for (double b : {64, 256, 1024}) {
      for (double c : {32, 512}) {
        EXPECT_GE((visits[{a, b, c}]), 1);
        EXPECT_NEAR(table.Lookup({a, b, c}).seconds, 1e-9 * a * b * c, 1e-15);
      }
    }
  }
  int64_t total = 0;
  for (const auto& [point, count] : visits) total += count;
  EXPECT_EQ(total, 4 * 3 * 2 + 10);
  EXPECT_EQ(table.residual.held_out, 10);
  EXPECT_LT(table.residual.p90, 1e-9);  // a power law is met exactly
}

TEST(MeasureTable, SettlesFallingTimesHalfWay) {
  const auto table = MeasureTable(Spec([](const cost::Point& p) {
                                    return p[0] == 16 ? 2e-6 : p[0] == 4 ? 4e-6 : p[0] * 1e-6;
                                  }),
                                  0);
  const double middle = std::sqrt(2e-6 * 4e-6);
  EXPECT_NEAR(table.Lookup({4, 64, 32}).seconds, middle, 1e-12);
  EXPECT_NEAR(table.Lookup({16, 64, 32}).seconds, middle, 1e-12);
  EXPECT_NEAR(table.Lookup({64, 64, 32}).seconds, 64e-6, 1e-12);
}

TEST(MeasureTable, StatesItsErrorBesideTheGrid) {
  // A knee between grid points that interpolation cannot know.
  const auto table =
      MeasureTable(Spec([](const cost::Point& p) { return p[0] <= 20 ? 1e-6 : p[0] * 1e-6; }), 40);
  EXPECT_GT(table.residual.p90, 0.05);
  EXPECT_LE(table.residual.median, table.residual.p90);
}

}  // namespace
}  // namespace forebay::profile
