#include "oracle/milp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "oracle/list_search.h"
#include "oracle/testing/random_instance.h"
#include "testing/test_data.h"

namespace forebay::oracle {
namespace {

std::string SolverPath() {
  const char* const set = std::getenv("FOREBAY_HIGHS");
  return set ? set : TestData() + "/../build/highs/libhighs.so";
}

struct Margins {
  int count = 0, within = 0, proven = 0;
  double found = 0, fifo = 0;  // sums of (makespan / optimum - 1)
};

// Ours and a queue's beside the optimum, or beside the best that is known after `seconds` each.
Margins Compare(const Solver& solver, Form form, int instances, double seconds) {
  Margins margins;
  for (int seed = 0; seed < instances; ++seed) {
    const Instance instance = RandomInstance(static_cast<uint64_t>(seed), form);
    const Packing ours = SearchPacking(instance), fifo = PlaceFifo(instance);
    const auto optimum = solver.Solve(instance, ours, seconds);
    EXPECT_TRUE(optimum.ok()) << optimum.status().ToString();
    const auto best = static_cast<double>(optimum->packing.makespan);
    const double over = static_cast<double>(ours.makespan) - best;
    ++margins.count;
    margins.proven += optimum->proven;
    margins.within += over <= std::max(1.0, .05 * best);
    margins.found += over / best;
    margins.fifo += static_cast<double>(fifo.makespan) / best - 1;
  }
  return margins;
}

// The shortest that placing one after another can give, in whatever order.
Packing BestOfAllOrders(const Instance& instance) {
  std::vector<int> order(instance.requests.size());
  std::iota(order.begin(), order.end(), 0);
  Packing best = PlaceForward(instance, order);
  while (std::ranges::next_permutation(order).found) {
    Packing packing = PlaceForward(instance, order);
    if (packing.makespan < best.makespan) best = std::move(packing);
  }
  return best;
}

class SolverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto solver = Solver::Load(SolverPath());
    if (!solver.ok()) GTEST_SKIP() << "without a solver: " << solver.status().ToString();
    solver_.emplace(*solver);
  }
  std::optional<Solver> solver_;
};

TEST_F(SolverTest, SolvesWhatCanBeSeen) {
  // Two that fit together and one that fits with neither.
  const Lengths lengths[] = {{4, 4}, {1, 1}, {8, 2}};
  const Instance instance = *MakeInstance(lengths, 10, Form::kPrinted, 0);
  const auto optimum = solver_->Solve(instance, PlaceFifo(instance), 10);
  ASSERT_TRUE(optimum.ok());
  EXPECT_EQ(optimum->packing.makespan, 6);
  EXPECT_TRUE(optimum->proven);
}

TEST_F(SolverTest, OursIsNearTheOptimumAndAQueueIsNot) {
  // How much is proven depends on the machine and is printed alone; the long form gives it time.
  const char* const asked = std::getenv("FOREBAY_ORACLE_INSTANCES");
  const int each = asked ? std::atoi(asked) : 20;
  for (const Form form : {Form::kPrinted, Form::kGrown}) {
    const Margins margins = Compare(*solver_, form, each, asked ? 10 : 2);
    std::printf("%s: ours %.2f %%, fifo %.1f %% over the optimum; %d of %d within, %d proven\n",
                std::string(Name(form)).c_str(), 100 * margins.found / margins.count,
                100 * margins.fifo / margins.count, margins.within, margins.count, margins.proven);
    EXPECT_LE(margins.found / margins.count, form == Form::kPrinted ? .005 : .015);
    const double within = form == Form::kPrinted ? .97 : .93;
    EXPECT_GE(margins.within, static_cast<int>(within * margins.count));
    EXPECT_GE(margins.fifo / margins.count, .10);
  }
}

// Where holdings do not change, some order of placing gives the optimum.
TEST_F(SolverTest, TheBestOfAllOrdersIsTheOptimumOfTheFormAsPrinted) {
  int proven = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const Instance instance = RandomInstance(seed, Form::kPrinted, 7);
    ASSERT_LE(instance.requests.size(), 7u);
    const Packing best = BestOfAllOrders(instance);
    // It is given a longer packing to begin from.
    const auto optimum = solver_->Solve(instance, PlaceFifo(instance), 10);
    ASSERT_TRUE(optimum.ok()) << optimum.status().ToString();
    EXPECT_GE(best.makespan, optimum->bound);
    proven += optimum->proven;
    if (optimum->proven) {
      EXPECT_EQ(best.makespan, optimum->packing.makespan);
    }
  }
  EXPECT_GE(proven, 6);  // the others took longer on this machine
}

TEST(Solver, AMissingLibraryIsSaidSo) {
  const auto solver = Solver::Load("/no/such/libhighs.so");
  ASSERT_FALSE(solver.ok());
  EXPECT_EQ(solver.status().code(), kSolverMissing);
  EXPECT_NE(solver.status().message().find("/no/such/libhighs.so"), std::string::npos);
  EXPECT_NE(solver.status().message().find("tools/fetch_highs.sh"), std::string::npos);
}

TEST(Solver, AnotherLibraryIsRefused) {
  const auto solver = Solver::Load("libm.so.6");
  ASSERT_FALSE(solver.ok());
  EXPECT_EQ(solver.status().message(), "libm.so.6 has no Highs_create: it is not HiGHS");
}

}  // namespace
}  // namespace forebay::oracle
