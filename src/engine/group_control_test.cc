// Replicas that agree on pull or ship and take requests from each other, with every interleaving
// replayable: nobody disagrees in a round, nobody waits for ever, no request is lost or done twice.
#include "engine/group_control.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <variant>

#include "base/rng.h"
#include "engine/steal_board.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::engine {
namespace {

constexpr StepMode kPull{.ffn = FfnMode::kPull}, kShip{.ffn = FfnMode::kShip},
    kGather{.ffn = FfnMode::kGather}, kRouted{.ffn = FfnMode::kRouted};

// What a replica was told in a round that was together.
struct Told {
  bool meets;
  share::ShipRows rows;
};

// A group of fake replicas: each has requests, phases without, pauses, requests that are cancelled,
// and may leave or fail at a random time. In a step that ships each waits for all replicas with
// whom it shipped, as streams do in their meetings; in one of its own it pulls all experts, those
// that have rows, or nothing, as it wants. One without requests takes some from the others.
class FakeGroup {
 public:
  FakeGroup(runtime::Runtime& runtime, const GroupOptions& options, uint64_t seed)
      : runtime_(runtime),
        options_(options),
        control_(runtime, options),
        board_(runtime, options.num_replicas),
        rng_(seed),
        met_(options.num_replicas),
        last_(options.num_replicas) {
    for (int replica = 0; replica < options.num_replicas; ++replica) seeds_.push_back(rng_.Next());
    fails_ = rng_.Next() % 3 == 0;
    leaves_ = !fails_ && rng_.Next() % 3 == 0;
    trouble_replica_ = static_cast<int>(rng_.Next() % static_cast<uint64_t>(options.num_replicas));
    trouble_step_ = static_cast<int>(rng_.Next() % 40);
  }

  void Run() {
    std::vector<std::unique_ptr<runtime::Task>> tasks;
    for (int replica = 0; replica < options_.num_replicas; ++replica) {
      tasks.push_back(runtime_.Spawn({.name = fmt::format("replica {}", replica)},
                                     [this, replica] { RunReplica(replica); }));
    }
    for (const auto& task : tasks) task->Join();
    // A gift to one that leaves is lost with it: only where somebody leaves with work under way.
    if (!hit_) {
      EXPECT_EQ(lost_, 0);
      EXPECT_EQ(static_cast<int64_t>(finished_.size()), requests_ - cancelled_);
    }
  }

  int64_t shipped() const { return shipped_; }
  int64_t pulled() const { return pulled_; }
  int64_t flips() const { return flips_; }
  int64_t cancelled() const { return cancelled_; }
  int64_t stolen() const { return stolen_; }
  bool failed() const { return fails_ && hit_; }

 private:
  using Held = std::vector<std::unique_ptr<RequestState>>;

  void RunReplica(int replica) {
    base::Rng rng(seeds_[replica]);
    Held held;
    for (int64_t line = 0, count = static_cast<int64_t>(rng.Next() % 9); line < count; ++line) {
      held.push_back(std::make_unique<RequestState>());
      held.back()->request.line = replica * 100 + line;
      // steps
      held.back()->unfinished = static_cast<int32_t>(1 + rng.Next() % (replica == 0 ? 30 : 8));
      ++requests_;
    }
    for (int step = 0; TakeStep(replica, step, rng, &held); ++step) {
    }
    control_.Leave(replica);
    lost_ += static_cast<int64_t>(held.size() + board_.Leave(replica).size());
  }

  bool TakeStep(int replica, int step, base::Rng& rng, Held* held) {
    if (replica == trouble_replica_ && step == trouble_step_ && (fails_ || leaves_)) {
      hit_ = true;
      if (fails_) {
        control_.Fail({base::kInvalidArgument, "planted"});
        aborted_ = true;
      }
      return false;
    }
    for (Gift& gift : board_.Collect(replica)) {
      held->push_back(std::move(gift.state));
      ++stolen_;
    }
    GiveAway(replica, rng, held);
    if (rng.Next() % 128 == 0) {
      cancelled_ += static_cast<int64_t>(held->size());
      held->clear();
    }
    const bool ended = held->empty(), idle = ended || rng.Next() % 4 == 0;
    constexpr StepMode kAlone[] = {kPull, kRouted, {}};
    StepOffer offer{.ended = ended, .wanted = kAlone[rng.Next() % 3]};
    if (!idle) {
      offer.rows = static_cast<int32_t>(1 + rng.Next() % 12);
      offer.prefill_rows = rng.Next() % 8 == 0 ? offer.rows : 0;
    }
    if (ended) board_.Ask(replica);
    const base::Result<Round> round = control_.Next(replica, offer);
    if (!round.ok()) return false;
    const bool meets = round->turn == Turn::kStep && round->mode.meets();
    EXPECT_TRUE(round->turn == Turn::kStep ? meets || !idle : idle);
    EXPECT_TRUE(round->turn != Turn::kStep || round->mode == (meets ? kShip : offer.wanted));
    if (round->turn == Turn::kStep) {
      StepMode& last = last_[static_cast<size_t>(replica)];
      flips_ += (last == kRouted) != (round->mode == kRouted);
      last = round->mode;
    }
    if (round->turn == Turn::kDone) {
      EXPECT_TRUE(ended);
      return false;
    }
    EXPECT_TRUE(!meets || round->rows[replica] == offer.rows);
    if (round->number > 0) Compare(replica, *round);
    if (!Execute(replica, *round, rng)) return false;
    if (!idle) Advance(held);
    return true;
  }

  void GiveAway(int replica, base::Rng& rng, Held* held) {
    if (board_.askers() == 0) return;
    const std::optional<int> to = board_.Claim();
    if (!to) return;
    if (rng.Next() % 2 == 0) runtime_.Yield();
    std::vector<Gift> gifts;
    while (held->size() > 1 && rng.Next() % 2 == 0) {
      gifts.push_back({.from = replica, .state = std::move(held->back()), .loans = {}});
      held->pop_back();
    }
    const bool any = !gifts.empty();
    board_.Give(*to, std::move(gifts));
    if (any) control_.Wake(*to);
  }

  void Advance(Held* held) {
    for (const auto& state : *held) {
      if (--state->unfinished > 0) continue;
      const std::lock_guard lock(mutex_);
      EXPECT_TRUE(finished_.insert(state->request.line).second)
          << "line " << state->request.line << " twice";
    }
    std::erase_if(*held, [](const auto& state) { return state->unfinished == 0; });
  }

  // Everybody was told the same. A replica without work is not told that others pull.
  void Compare(int replica, const Round& round) {
    const std::lock_guard lock(mutex_);
    const bool ships = round.turn == Turn::kStep && round.mode.meets();
    const auto [told, first] = told_.try_emplace(round.number, Told{ships, round.rows});
    EXPECT_EQ(told->second.meets, ships) << "replica " << replica << " in round " << round.number;
    EXPECT_EQ(told->second.rows, round.rows)
        << "replica " << replica << " in round " << round.number;
    ++(ships ? shipped_ : pulled_);
  }

  bool Execute(int replica, const Round& round, base::Rng& rng) {
    if (rng.Next() % 2 == 0) runtime_.Sleep(static_cast<runtime::TimeNs>(rng.Next() % 3000));
    if (rng.Next() % 64 == 0) runtime_.Sleep(30'000);
    if (round.turn != Turn::kStep || !round.mode.meets()) return true;
    {
      const std::lock_guard lock(mutex_);
      met_[replica] = round.number;
    }
    // A replica that shipped has shipped all rounds before: each waits for all, and all must come,
    // unless one fails.
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
  StealBoard board_;
  base::Rng rng_;
  std::vector<uint64_t> seeds_;
  bool fails_ = false, leaves_ = false;
  int trouble_replica_ = 0, trouble_step_ = 0;
  std::atomic<bool> hit_{false}, aborted_{false};
  std::mutex mutex_;
  std::map<uint64_t, Told> told_;  // by round
  std::vector<uint64_t> met_;      // by replica: the latest round that it shipped
  std::vector<StepMode> last_;     // by replica: of its latest step
  std::set<int64_t> finished_;     // lines
  std::atomic<int64_t> shipped_{0}, pulled_{0}, flips_{0}, stolen_{0}, requests_{0}, cancelled_{0},
      lost_{0};
};

GroupOptions OptionsOf(uint64_t seed) {
  base::Rng rng(seed);
  GroupOptions options{.num_replicas = static_cast<int>(1 + rng.Next() % 8)};
  options.by_load = rng.Next() % 3 != 0;
  options.load.threshold = static_cast<double>(2 + rng.Next() % 8);
  options.most_rows = static_cast<int32_t>(6 + rng.Next() % 8);
  options.load.patience = static_cast<int>(1 + rng.Next() % 4);
  options.flip_every = rng.Next() % 4 == 0 ? static_cast<int>(1 + rng.Next() % 3) : 0;
  options.look_every = 1000;
  return options;
}

TEST(GroupControl, TenThousandInterleavings) {
  int64_t shipped = 0, pulled = 0, flips = 0, cancelled = 0, failed = 0, stolen = 0;
  for (uint64_t seed = 0; seed < 10'000; ++seed) {
    runtime::VirtualRuntime runtime(seed);
    const base::Status status = runtime.Run([&] {
      FakeGroup group(runtime, OptionsOf(seed), seed);
      group.Run();
      shipped += group.shipped();
      pulled += group.pulled();
      flips += group.flips();
      cancelled += group.cancelled();
      failed += group.failed();
      stolen += group.stolen();
    });
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.ToString();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(shipped, 10'000);
  EXPECT_GT(pulled, 10'000);
  EXPECT_GT(flips, 100'000);
  EXPECT_GT(cancelled, 1000);
  EXPECT_GT(failed, 1000);
  EXPECT_GT(stolen, 10'000);
}

TEST(GroupControl, RealThreads) {
  const auto runtime = runtime::CreateRealRuntime();
  for (uint64_t seed = 0; seed < 40; ++seed) {
    GroupOptions options = OptionsOf(seed);
    options.num_replicas = 8;
    options.look_every = 50'000;
    FakeGroup(*runtime, options, seed).Run();
  }
}

// Replicas that never meet wait at the board alone.
TEST(StealBoard, TenThousandInterleavings) {
  int64_t stolen = 0;
  for (uint64_t seed = 0; seed < 10'000; ++seed) {
    runtime::VirtualRuntime runtime(seed);
    base::Rng rng(seed);
    const int replicas = static_cast<int>(2 + rng.Next() % 7);
    std::vector<uint64_t> seeds;
    for (int i = 0; i < replicas; ++i) seeds.push_back(rng.Next());
    const int leaves =
        rng.Next() % 3 == 0 ? static_cast<int>(rng.Next() % static_cast<uint64_t>(replicas)) : -1;
    std::map<int64_t, int> finished;
    int64_t requests = 0;
    const base::Status status = runtime.Run([&] {
      StealBoard board(runtime, replicas);
      const auto run = [&](int replica) {
        base::Rng own(seeds[static_cast<size_t>(replica)]);
        std::vector<std::unique_ptr<RequestState>> held;
        for (int64_t line = 0, count = static_cast<int64_t>(own.Next() % 9); line < count; ++line) {
          held.push_back(std::make_unique<RequestState>());
          held.back()->request.line = replica * 100 + line;
          ++requests;
        }
        for (int step = 0; replica != leaves || step < 5; ++step) {
          for (Gift& gift : board.Collect(replica)) {
            held.push_back(std::move(gift.state));
            ++stolen;
          }
          if (held.empty()) {
            if (board.Await(replica, 1000) == StealBoard::Answer::kDone) break;
            continue;
          }
          const std::optional<int> to = board.askers() > 0 ? board.Claim() : std::nullopt;
          if (to) {
            runtime.Yield();
            std::vector<Gift> gifts;
            if (held.size() > 1) {
              gifts.push_back({.from = replica, .state = std::move(held.back()), .loans = {}});
              held.pop_back();
            }
            board.Give(*to, std::move(gifts));
          }
          runtime.Sleep(static_cast<runtime::TimeNs>(own.Next() % 2000));
          if (own.Next() % 3 != 0) continue;
          ++finished[held.front()->request.line];
          held.erase(held.begin());
        }
        board.Leave(replica);
      };
      std::vector<std::unique_ptr<runtime::Task>> tasks;
      for (int i = 0; i < replicas; ++i)
        tasks.push_back(
            runtime.Spawn({.name = fmt::format("replica {}", i)}, [&run, i] { run(i); }));
      for (const auto& task : tasks) task->Join();
    });
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.ToString();
    for (const auto& [line, times] : finished)
      ASSERT_EQ(times, 1) << "line " << line << ", seed " << seed;
    if (leaves < 0) {
      ASSERT_EQ(static_cast<int64_t>(finished.size()), requests) << "seed " << seed;
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(stolen, 10'000);
}

class OneReplica : public testing::Test {
 protected:
  // What a replica alone in its group does for steps of these rows: the mode of a step, or the
  // turn.
  using Turns = std::vector<std::variant<StepMode, Turn>>;
  Turns Take(const GroupOptions& options, const std::vector<StepOffer>& loads) {
    Turns turns;
    runtime::VirtualRuntime runtime(1);
    EXPECT_TRUE(runtime
                    .Run([&] {
                      GroupControl control(runtime, options);
                      for (StepOffer offer : loads) {
                        offer.wanted = kPull;
                        const Round round = *control.Next(0, offer);
                        if (round.turn == Turn::kStep) {
                          turns.push_back(round.mode);
                        } else {
                          turns.push_back(round.turn);
                        }
                      }
                    })
                    .ok());
    return turns;
  }
};

TEST_F(OneReplica, ShipsAfterCalmStepsAndPullsAgainAboveTheThreshold) {
  const GroupOptions options{.load = {.threshold = 10, .patience = 3}};
  // Below the threshold for three steps in a row: the third ships. Up to 12 rows go on; 13 are too
  // many.
  EXPECT_EQ(
      Take(options, {{9}, {9}, {10}, {9}, {9}, {9}, {12}, {13}, {12}, {9}, {9}, {9}}),
      (Turns{kPull, kPull, kPull, kPull, kPull, kShip, kShip, kPull, kPull, kPull, kPull, kShip}));
}

TEST_F(OneReplica, PromptsAboveTheThresholdAndTooManyRowsPullOnce) {
  const GroupOptions options{.load = {.threshold = 10, .patience = 1}, .most_rows = 11};
  EXPECT_EQ(Take(options, {{5}, {12, 11}, {12, 9}, {11, 10}, {12}, {5}}),
            (Turns{kShip, kPull, kPull, kShip, kPull, kShip}));
}

TEST_F(OneReplica, ModesCanBeForced) {
  EXPECT_EQ(Take({.together = kGather, .by_load = false, .most_rows = 9}, {{9, 9}, {10}, {9}}),
            (Turns{kGather, kPull, kGather}));
  EXPECT_EQ(
      Take({.together = kGather, .by_load = false, .flip_every = 2}, {{1}, {1}, {1}, {1}, {1}}),
      (Turns{kGather, kGather, kPull, kPull, kGather}));
}

// A replica that comes `late`, takes a first step, and decodes one row a step from there on.
struct Script {
  runtime::TimeNs late = 0;
  StepOffer first;
  runtime::TimeNs first_takes = 0;
};
// The steps that decode which each replica takes alone before they meet.
std::vector<int> StepsAlone(const std::vector<Script>& scripts) {
  constexpr int kShipped = 3;
  runtime::VirtualRuntime runtime(1);
  std::vector<int> alone(scripts.size(), 0);
  EXPECT_TRUE(runtime
                  .Run([&] {
                    GroupControl control(runtime, {.num_replicas = static_cast<int>(scripts.size()),
                                                   .load = {.threshold = 10, .patience = 1}});
                    const auto run = [&](int replica) {
                      const Script& script = scripts[static_cast<size_t>(replica)];
                      runtime.Sleep(script.late);
                      if (script.first.rows > 0) {
                        EXPECT_FALSE(control.Next(replica, script.first)->mode.meets());
                        runtime.Sleep(script.first_takes);
                      }
                      for (int shipped = 0; shipped < kShipped;) {
                        if (control.Next(replica, {.rows = 1, .wanted = kPull})->mode.meets()) {
                          ++shipped;
                        } else {
                          ++alone[static_cast<size_t>(replica)];
                          runtime.Sleep(300);
                        }
                      }
                      control.Leave(replica);
                    };
                    std::vector<std::unique_ptr<runtime::Task>> tasks;
                    for (int i = 0; i < static_cast<int>(scripts.size()); ++i)
                      tasks.push_back(runtime.Spawn({.name = fmt::format("replica {}", i)},
                                                    [&run, i] { run(i); }));
                    for (const auto& task : tasks) task->Join();
                  })
                  .ok());
  return alone;
}

// Where a step that pulls costs as much as a meeting, no replica takes more of them than the one
// that it is in when the last prompt is read.
TEST(GroupControl, MeetsAsSoonAsTheLoadIsLow) {
  constexpr StepOffer kPrompt{.rows = 100, .prefill_rows = 100, .wanted = kPull};
  EXPECT_EQ(StepsAlone({{0, kPrompt, 1000}, {0, kPrompt, 1010}, {0, kPrompt, 1020}}),
            (std::vector<int>{1, 1, 0}));
}

// Nor does one wait for those of whom it is known that they do not meet yet, or nothing.
TEST(GroupControl, NobodyWaitsForALongPromptOrForWhoHasNotCome) {
  const std::vector<int> late = StepsAlone({{}, {.late = 5000}, {.late = 5000}});
  EXPECT_GE(late[0], 16);
  // The load is low on average: 22 rows of three.
  const StepOffer prompt{.rows = 20, .prefill_rows = 20, .wanted = kPull};
  const std::vector<int> unlike = StepsAlone({{}, {}, {0, prompt, 5000}});
  EXPECT_GE(std::min(unlike[0], unlike[1]), 16);
  EXPECT_EQ(unlike[2], 0);
}

TEST_F(OneReplica, EndsWhenAllHaveEnded) {
  EXPECT_EQ(Take({.together = kGather, .by_load = false}, {{5}, {}, {.ended = true}}),
            (Turns{kGather, Turn::kLook, Turn::kDone}));
}

}  // namespace
}  // namespace forebay::engine
