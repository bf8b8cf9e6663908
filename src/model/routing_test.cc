#include "model/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace forebay::model {
namespace {

using kernels::RoutingSource;

std::vector<int32_t> Counts(const RoutingSource& source, const RoutingSource::Draw& draw,
                            size_t experts) {
  std::vector<int32_t> counts(experts, -1);
  source.Count(draw, counts);
  return counts;
}

TEST(Routing, EverySlotGoesSomewhereAndNoRowTwiceToOneExpert) {
  for (const char* text : {"balanced", "power:1", "power:1.01", "power:1.2", "power:5"}) {
    const auto source = ParseRouting(text, 3).value();
    for (const int64_t rows : {1, 2, 7, 64, 4096}) {
      for (const int64_t chosen : {1, 2, 8}) {
        for (const size_t experts : {8, 60, 256}) {
          const std::vector<int32_t> counts =
              Counts(*source,
                     {.rank = 1, .step = 9, .layer = 4, .rows = rows, .experts_per_token = chosen},
                     experts);
          EXPECT_EQ(std::reduce(counts.begin(), counts.end()), rows * chosen) << text;
          EXPECT_GE(std::ranges::min(counts), 0) << text;
          EXPECT_LE(std::ranges::max(counts), rows) << text << " " << rows << " " << chosen;
        }
      }
    }
  }
}

TEST(Routing, BalancedIsEvenToWithinOne) {
  const auto source = ParseRouting("balanced", 0).value();
  for (uint64_t step = 0; step < 20; ++step) {
    const std::vector<int32_t> counts =
        Counts(*source, {.step = step, .rows = 100, .experts_per_token = 8}, 128);
    EXPECT_LE(std::ranges::max(counts) - std::ranges::min(counts), 1);
  }
}

TEST(Routing, PowerLawsAreSkewedAlikeInAllStepsAndOtherwiseInOtherLayers) {
  const auto source = ParseRouting("power:1.2", 0).value();
  RoutingSource::Draw draw{.rows = 4096, .experts_per_token = 8};
  const std::vector<int32_t> counts = Counts(*source, draw, 256);
  EXPECT_GT(std::ranges::max(counts), 10 * 4096 * 8 / 256);
  const auto busiest = std::ranges::max_element(counts) - counts.begin();
  draw.step = 1;
  draw.rank = 3;
  const std::vector<int32_t> later = Counts(*source, draw, 256);
  EXPECT_EQ(std::ranges::max_element(later) - later.begin(), busiest);
  draw.layer = 1;
  EXPECT_THAT(Counts(*source, draw, 256), testing::Not(testing::ElementsAreArray(counts)));
}

// What a law expects is kept: it is the same however often and between what it is asked.
TEST(Routing, CountsDoNotDependOnWhatWasAskedBefore) {
  for (const char* text : {"balanced", "power:1", "power:1.2"}) {
    const auto asked = ParseRouting(text, 3).value();
    for (int64_t pass = 0; pass < 2; ++pass) {
      for (int64_t layer = 0; layer < 3; ++layer) {
        for (int64_t rows = 1; rows < 900; rows += 1 + rows / 8) {
          for (const int64_t chosen : {2, 8}) {
            for (const size_t experts : {8, 60}) {
              const RoutingSource::Draw draw{.step = 5 + static_cast<uint64_t>(pass),
                                             .layer = layer,
                                             .rows = rows,
                                             .experts_per_token = chosen};
              const auto fresh = ParseRouting(text, 3).value();
              EXPECT_EQ(Counts(*asked, draw, experts), Counts(*fresh, draw, experts)) << text;
            }
          }
        }
      }
    }
  }
}

TEST(Routing, OtherTextsAreRefused) {
  for (const char* text : {"", "even", "power", "power:", "power:x", "power:0", "power:-1"}) {
    const base::Status status = ParseRouting(text, 0).status();
    EXPECT_EQ(status.code(), kRoutingInvalid) << text;
    EXPECT_THAT(status.message(), testing::HasSubstr("balanced"));
  }
}

}  // namespace
}  // namespace forebay::model
