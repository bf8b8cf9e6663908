#include "oracle/list_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "oracle/testing/random_instance.h"

namespace forebay::oracle {
namespace {

TEST(ListSearch, PlacesEachWhereItFirstFits) {
  const Lengths lengths[] = {{4, 4}, {4, 4}, {1, 1}};
  const Instance instance = *MakeInstance(lengths, 10, Form::kPrinted, 0);
  const int order[] = {0, 1, 2};
  EXPECT_EQ(PlaceForward(instance, order).begin, (std::vector<int64_t>{0, 4, 0}));
  // In order, the third may not overtake the second.
  EXPECT_EQ(PlaceFifo(instance).begin, (std::vector<int64_t>{0, 4, 4}));
  EXPECT_EQ(PlaceBackward(instance, order).begin, (std::vector<int64_t>{4, 0, 7}));
}

TEST(ListSearch, PackingsAreValidAndNeverLongerThanFifo) {
  for (const Form form : {Form::kPrinted, Form::kGrown, Form::kChunked}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const Instance instance = RandomInstance(seed, form);
      const Packing fifo = PlaceFifo(instance),
                    found = SearchPacking(instance, {.placements = 800});
      CheckPacking(instance, fifo);
      CheckPacking(instance, found);
      EXPECT_LE(found.makespan, fifo.makespan);
      EXPECT_GE(found.makespan, LowerBound(instance));
    }
  }
}

TEST(ListSearch, TheSameSeedGivesTheSamePacking) {
  const Instance instance = RandomInstance(3, Form::kGrown);
  const SearchOptions options{.placements = 500, .seed = 7};
  EXPECT_EQ(SearchPacking(instance, options).begin, SearchPacking(instance, options).begin);
}

// Where holdings do not change, some order of placing gives the optimum.
TEST(ListSearch, FindsTheBestOfAllOrdersWhereTheyCanBeTried) {
  int worse = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Instance instance = RandomInstance(seed, Form::kPrinted, 6);
    std::vector<int> order(instance.requests.size());
    std::iota(order.begin(), order.end(), 0);
    int64_t best = INT64_MAX;
    do {
      best = std::min(best, PlaceForward(instance, order).makespan);
    } while (std::ranges::next_permutation(order).found);
    const int64_t found = SearchPacking(instance).makespan;
    EXPECT_GE(found, best);
    worse += found > best;
  }
  EXPECT_EQ(worse, 0);
}

TEST(ListSearch, NothingIsPackedInNoTime) {
  EXPECT_EQ(SearchPacking({.requests = {}, .capacity = 1}).makespan, 0);
}

}  // namespace
}  // namespace forebay::oracle
