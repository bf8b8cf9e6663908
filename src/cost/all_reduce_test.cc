#include "cost/all_reduce.h"

#include <gtest/gtest.h>

namespace forebay::cost {
namespace {

constexpr int64_t kMostRows = 16384;

// Where the second meeting begins to pay. Of the H200 both ways are measured: its all-reduce takes
// two stages of its own where sizes are large, and on eight the switch adds, so that nothing is
// gained there. Between the ranks of a CPU a meeting costs a microsecond, and each reads at the
// rate of a core's copies:
//   1.04 us + (t - 1) n d 4 / rate   against   2.09 us + (t - 1) / t n d (4 + 2) / rate.
TEST(AllReduce, MeetsTwiceWhereThatIsCheaper) {
  struct Case {
    const char* device;
    int64_t columns;
    int ranks;
    int64_t least, most;  // rows of one meeting
  };
  for (const Case& c :
       {Case{"zen5", 1024, 2, 15, 30}, Case{"zen5", 1024, 4, 1, 4}, Case{"zen5", 256, 4, 8, 14},
        Case{"zen5", 64, 8, 10, 18}, Case{"h200", 8192, 8, kMostRows, kMostRows},
        Case{"h200", 8192, 2, 512, kMostRows - 1}, Case{"a10", 4096, 4, 1, 64}}) {
    const DeviceProfile device = *LoadProfile(c.device);
    const AllReduceShape shape{.columns = c.columns, .ranks = c.ranks};
    const auto seconds = [&](int64_t rows, int meetings) {
      return AllReduceSeconds(shape, rows, meetings, device, Calibration::kCalibrated);
    };
    const int64_t rows = RowsOfOneMeeting(shape, kMostRows, device, Calibration::kCalibrated);
    EXPECT_GE(rows, c.least) << c.device << " x " << c.ranks;
    EXPECT_LE(rows, c.most) << c.device << " x " << c.ranks;
    if (rows > 0) {
      EXPECT_LE(seconds(rows, 1), seconds(rows, 2)) << c.device;
    }
    if (rows == kMostRows) continue;
    EXPECT_GT(seconds(rows + 1, 1), seconds(rows + 1, 2)) << c.device;
    EXPECT_GT(seconds(kMostRows, 1), seconds(kMostRows, 2)) << c.device;
  }
}

TEST(AllReduce, OneRankMeetsNobody) {
  const DeviceProfile device = *LoadProfile("zen5");
  EXPECT_EQ(RowsOfOneMeeting({.columns = 1024}, kMostRows, device, Calibration::kCalibrated),
            kMostRows);
}

// A buffer that every rank reads whole costs as often more as there are other ranks.
TEST(AllReduce, OneMeetingReadsAllOthers) {
  const DeviceProfile device = *LoadProfile("zen5");
  const auto seconds = [&](int ranks) {
    return AllReduceSeconds({.columns = 1 << 20, .ranks = ranks}, 64, 1, device,
                            Calibration::kCalibrated);
  };
  EXPECT_NEAR(seconds(8) / seconds(2), 7, 0.01);
}

}  // namespace
}  // namespace forebay::cost
