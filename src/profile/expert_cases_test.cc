#include <gtest/gtest.h>

#include "base/units.h"
#include "profile/cases.h"
#include "runtime/real/real_runtime.h"

namespace forebay::profile {
namespace {

// Matrices of 128 x 64 and 256 x 128: an expert's time by its rows, by the skew of all rows, and by
// its weights.
TEST(MeasureExpertTable, KnowsWhatMoreRowsAndWeightsTake) {
  const auto runtime = runtime::CreateRealRuntime();
  Grid grid = CpuGrid(true);
  grid.data_bytes = 8 * base::kMiB;
  const auto subject = MakeSubject({.threads = 1, .quick = true, .grid = grid});
  ASSERT_TRUE(subject.ok()) << subject.status().ToString();
  const auto bench = Bench::Create(*runtime, **subject);
  ASSERT_TRUE(bench.ok()) << bench.status().ToString();
  const double small = 128 * 64, large = 256 * 128;
  const cost::UtilisationTable table = MeasureExpertTable(**bench, cost::NumberFormat::kBF16,
                                                          {{{1, 64}, {1, 4}, {small, large}}}, 2);
  EXPECT_EQ(table.op, cost::TableOp::kExperts);
  EXPECT_EQ(table.format, cost::NumberFormat::kBF16);
  EXPECT_EQ(table.residual.held_out, 2);
  for (const double skew : {1.0, 4.0}) {
    EXPECT_GT(table.Lookup({1, skew, small}).seconds, 0);
    // 64 and 4 times the work; half as much of it at least shows.
    EXPECT_GT(table.Lookup({64, skew, small}).seconds, 2 * table.Lookup({1, skew, small}).seconds);
    EXPECT_GT(table.Lookup({64, skew, large}).seconds,
              1.5 * table.Lookup({64, skew, small}).seconds);
  }
  for (const cost::NumberFormat format : {cost::NumberFormat::kInt4, cost::NumberFormat::kInt8}) {
    const cost::UtilisationTable stored =
        MeasureExpertTable(**bench, format, {{{1, 64}, {1}, {small}}}, 0);
    EXPECT_EQ(stored.format, format);
    EXPECT_GT(stored.Lookup({64, 1, small}).seconds, stored.Lookup({1, 1, small}).seconds);
  }
}

}  // namespace
}  // namespace forebay::profile
