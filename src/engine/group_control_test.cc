// Ranks that agree on pull or ship, with every interleaving replayable: nobody disagrees in a round, nobody waits for ever.
#include "engine/group_control.h"

#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::engine {
namespace {

// What a rank was told in a round that was together.
struct Told {
  Turn turn;
  model::ShipRows rows;
};

// A group of fake ranks: each has phases of work and of none, and may end or fail at a random time. In a step that ships each
// waits for all ranks with whom it shipped, as streams do in their meetings.
class FakeGroup {
 public:
  FakeGroup(runtime::Runtime& runtime, const GroupOptions& options, uint64_t seed)
      : runtime_(runtime), options_(options), control_(runtime, options), rng_(seed), met_(options.num_ranks) {
    for (int rank = 0; rank < options.num_ranks; ++rank) seeds_.push_back(rng_.Next());
    fails_ = rng_.Next() % 3 == 0;
    leaves_ = !fails_ && rng_.Next() % 3 == 0;
    trouble_rank_ = static_cast<int>(rng_.Next() % static_cast<uint64_t>(options.num_ranks));
    trouble_step_ = static_cast<int>(rng_.Next() % 40);
  }

  void Run() {
    std::vector<std::unique_ptr<runtime::Task>> tasks;
    for (int rank = 0; rank < options_.num_ranks; ++rank) {
      tasks.push_back(runtime_.Spawn({.name = fmt::format("rank {}", rank)}, [this, rank] { RunRank(rank); }));
    }
    for (const auto& task : tasks) task->Join();
  }

  int64_t shipped() const { return shipped_; }
  int64_t pulled() const { return pulled_; }
  bool failed() const { return fails_ && hit_; }

 private:
  void RunRank(int rank) {
    base::Rng rng(seeds_[rank]);
    int steps = static_cast<int>(rng.Next() % 60);
    for (int step = 0;; ++step) {
      if (rank == trouble_rank_ && step == trouble_step_ && (fails_ || leaves_)) {
        hit_ = true;
        if (fails_) {
          control_.Fail({base::kInvalidArgument, "planted"});
          aborted_ = true;
        }
        break;
      }
      const bool ended = steps <= 0, idle = ended || rng.Next() % 4 == 0;
      RankLoad load{.ended = ended};
      if (!idle) {
        --steps;
        load.rows = static_cast<int32_t>(1 + rng.Next() % 12);
        load.prefill_rows = rng.Next() % 8 == 0 ? load.rows : 0;
      }
      const base::Result<Round> round = control_.Next(rank, load);
      if (!round.ok()) break;
      EXPECT_TRUE(idle ? round->turn != Turn::kPull : round->turn == Turn::kPull || round->turn == Turn::kShip);
      if (round->turn == Turn::kDone) {
        EXPECT_TRUE(ended);
        break;
      }
      EXPECT_TRUE(round->turn != Turn::kShip || round->rows[rank] == load.rows);
      if (round->number > 0) Compare(rank, *round);
      if (!Execute(rank, *round, rng)) break;
    }
    control_.Leave(rank);
  }

  // Everybody was told the same. A rank without work is not told that others pull.
  void Compare(int rank, const Round& round) {
    const std::lock_guard lock(mutex_);
    const bool ships = round.turn == Turn::kShip;
    const auto [told, first] = told_.try_emplace(round.number, Told{ships ? Turn::kShip : Turn::kPull, round.rows});
    EXPECT_EQ(told->second.turn == Turn::kShip, ships) << "rank " << rank << " in round " << round.number;
    EXPECT_EQ(told->second.rows, round.rows) << "rank " << rank << " in round " << round.number;
    ++(ships ? shipped_ : pulled_);
  }

  bool Execute(int rank, const Round& round, base::Rng& rng) {
    if (rng.Next() % 2 == 0) runtime_.Sleep(static_cast<runtime::TimeNs>(rng.Next() % 3000));
    if (round.turn != Turn::kShip) return true;
    {
      const std::lock_guard lock(mutex_);
      met_[rank] = round.number;
    }
    // A rank that shipped has shipped all rounds before: each waits for all, and all must come, unless one fails.
    while (!AllMet(round.number)) {
      if (aborted_) return false;
      runtime_.Sleep(500);
    }
    return true;
  }

  bool AllMet(uint64_t number) {
    const std::lock_guard lock(mutex_);
    return std::ranges::all_of(met_, [&](uint64_t met) { return met >= number; });
  }

  runtime::Runtime& runtime_;
  const GroupOptions options_;
  GroupControl control_;
  base::Rng rng_;
  std::vector<uint64_t> seeds_;
  bool fails_ = false, leaves_ = false;
  int trouble_rank_ = 0, trouble_step_ = 0;
  std::atomic<bool> hit_{false}, aborted_{false};
  std::mutex mutex_;
  std::map<uint64_t, Told> told_;   // by round
  std::vector<uint64_t> met_;       // by rank: the latest round that it shipped
  std::atomic<int64_t> shipped_{0}, pulled_{0};
};

GroupOptions OptionsOf(uint64_t seed) {
  base::Rng rng(seed);
  GroupOptions options{.num_ranks = static_cast<int>(1 + rng.Next() % 8)};
  options.mode = rng.Next() % 3 == 0 ? GroupMode::kShip : GroupMode::kAuto;
  options.threshold = static_cast<double>(2 + rng.Next() % 8);
  options.most_rows = static_cast<int32_t>(6 + rng.Next() % 8);
  options.patience = static_cast<int>(1 + rng.Next() % 4);
  options.flip_every = rng.Next() % 4 == 0 ? static_cast<int>(1 + rng.Next() % 3) : 0;
  options.look_every = 1000;
  return options;
}

TEST(GroupControl, TenThousandInterleavings) {
  int64_t shipped = 0, pulled = 0, failed = 0;
  for (uint64_t seed = 0; seed < 10'000; ++seed) {
    runtime::VirtualRuntime runtime(seed);
    const base::Status status = runtime.Run([&] {
      FakeGroup group(runtime, OptionsOf(seed), seed);
      group.Run();
      shipped += group.shipped();
      pulled += group.pulled();
      failed += group.failed();
    });
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.ToString();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(shipped, 10'000);
  EXPECT_GT(pulled, 10'000);
  EXPECT_GT(failed, 1000);
}

TEST(GroupControl, RealThreads) {
  const auto runtime = runtime::CreateRealRuntime();
  for (uint64_t seed = 0; seed < 40; ++seed) {
    GroupOptions options = OptionsOf(seed);
    options.num_ranks = 8;
    options.look_every = 50'000;
    FakeGroup(*runtime, options, seed).Run();
  }
}

class OneRank : public testing::Test {
 protected:
  // Turns of a rank alone in its group for steps of these rows.
  std::vector<Turn> Turns(const GroupOptions& options, const std::vector<RankLoad>& loads) {
    std::vector<Turn> turns;
    runtime::VirtualRuntime runtime(1);
    EXPECT_TRUE(runtime.Run([&] {
      GroupControl control(runtime, options);
      for (const RankLoad& load : loads) turns.push_back(control.Next(0, load)->turn);
    }).ok());
    return turns;
  }
};

constexpr Turn kP = Turn::kPull, kS = Turn::kShip;

TEST_F(OneRank, ShipsAfterCalmStepsAndPullsAgainAboveTheThreshold) {
  const GroupOptions options{.threshold = 10, .patience = 3};
  // Below the threshold for three steps in a row: the third ships. Up to 12 rows go on; 13 are too many.
  EXPECT_EQ(Turns(options, {{9}, {9}, {10}, {9}, {9}, {9}, {12}, {13}, {12}, {9}, {9}, {9}}),
            (std::vector{kP, kP, kP, kP, kP, kS, kS, kP, kP, kP, kP, kS}));
}

TEST_F(OneRank, PromptsAboveTheThresholdAndTooManyRowsPullOnce) {
  const GroupOptions options{.threshold = 10, .most_rows = 11, .patience = 1};
  EXPECT_EQ(Turns(options, {{5}, {12, 11}, {12, 9}, {11, 10}, {12}, {5}}), (std::vector{kS, kP, kP, kS, kP, kS}));
}

TEST_F(OneRank, ModesCanBeForced) {
  EXPECT_EQ(Turns({.mode = GroupMode::kPull, .threshold = 10, .patience = 1}, {{1}, {1}}), (std::vector{kP, kP}));
  EXPECT_EQ(Turns({.mode = GroupMode::kShip, .most_rows = 9}, {{9, 9}, {10}, {9}}), (std::vector{kS, kP, kS}));
  EXPECT_EQ(Turns({.mode = GroupMode::kShip, .flip_every = 2}, {{1}, {1}, {1}, {1}, {1}}), (std::vector{kS, kS, kP, kP, kS}));
}

TEST_F(OneRank, EndsWhenAllHaveEnded) {
  EXPECT_EQ(Turns({.mode = GroupMode::kShip}, {{5}, {}, {.ended = true}}), (std::vector{kS, Turn::kLook, Turn::kDone}));
}

}  // namespace
}  // namespace forebay::engine
