#include "runtime/virtual/virtual_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "runtime/mailbox.h"

namespace forebay::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Three tasks append their letters; the result shows the interleaving.
std::string Interleaving(uint64_t seed, uint64_t* trace_hash) {
  VirtualRuntime runtime(seed);
  std::string letters;
  const auto status = runtime.Run([&] {
    std::vector<std::unique_ptr<Task>> tasks;
    for (const char letter : {'a', 'b', 'c'}) {
      tasks.push_back(runtime.Spawn({.name = std::string(1, letter)}, [&, letter] {
        for (int i = 0; i < 3; ++i) {
          letters += letter;
          runtime.Yield();
        }
      }));
    }
  });
  EXPECT_TRUE(status.ok());
  *trace_hash = runtime.trace_hash();
  return letters;
}

TEST(VirtualRuntime, SeedDeterminesTheInterleaving) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    uint64_t hash = 0, replayed_hash = 0;
    const std::string letters = Interleaving(seed, &hash);
    EXPECT_EQ(Interleaving(seed, &replayed_hash), letters);
    EXPECT_EQ(replayed_hash, hash);
    seen.insert(letters);
  }
  EXPECT_GT(seen.size(), 100u);
}

TEST(VirtualRuntime, TimeIsVirtualAndAdvancesOnlyWhenAllWait) {
  VirtualRuntime runtime(1);
  const auto status = runtime.Run([&] {
    const TimeNs hour = 3'600'000'000'000;
    const auto sleeper = runtime.Spawn({.name = "sleeper"}, [&] { runtime.Sleep(hour); });
    for (int i = 0; i < 10; ++i) runtime.Yield();
    EXPECT_EQ(runtime.Now(), 0);
    sleeper->Join();
    EXPECT_EQ(runtime.Now(), hour);
  });
  EXPECT_TRUE(status.ok());
}

TEST(VirtualRuntime, TimersFireInOrder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    VirtualRuntime runtime(seed);
    std::string order;
    ASSERT_TRUE(runtime
                    .Run([&] {
                      const auto late = runtime.Spawn({.name = "late"},
                                                      [&] { runtime.Sleep(200), order += 'c'; });
                      const auto early = runtime.Spawn({.name = "early"},
                                                       [&] { runtime.Sleep(100), order += 'a'; });
                      const auto event = runtime.NewEvent("never");
                      EXPECT_FALSE(event->Wait(150));
                      order += 'b';
                    })
                    .ok());
    EXPECT_EQ(order, "abc");
  }
}

// Each task takes one of two tokens, then wants the other: some interleavings end with both
// waiting.
base::Status TakeTokensInOppositeOrder(uint64_t seed, uint64_t* trace_hash) {
  VirtualRuntime runtime(seed);
  Mailbox<int> left(runtime, "left token", 1), right(runtime, "right token", 1);
  const base::Status status = runtime.Run([&] {
    left.Send(0);
    right.Send(0);
    const auto take_both = [](Mailbox<int>& first, Mailbox<int>& second) {
      first.Receive();
      second.Receive();
      second.Send(0);
      first.Send(0);
    };
    const auto task = runtime.Spawn({.name = "rank 1"}, [&] { take_both(right, left); });
    take_both(left, right);
  });
  *trace_hash = runtime.trace_hash();
  return status;
}

TEST(VirtualRuntime, FindsAPlantedDeadlockAndReplaysIt) {
  int passed = 0, found = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    uint64_t hash = 0, replayed_hash = 0;
    const base::Status status = TakeTokensInOppositeOrder(seed, &hash);
    status.ok() ? ++passed : ++found;
    const base::Status replayed = TakeTokensInOppositeOrder(seed, &replayed_hash);
    EXPECT_EQ(replayed.ToString(), status.ToString());
    EXPECT_EQ(replayed_hash, hash);
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), kDeadlock);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("task 'main' waits for event 'right token has a message'"),
                      HasSubstr("task 'rank 1' waits for event 'left token has a message'"),
                      HasSubstr("seed " + std::to_string(seed))));
  }
  EXPECT_GT(passed, 0);
  EXPECT_GT(found, 0);
}

TEST(VirtualRuntime, ReportsAJoinThatNeverEnds) {
  VirtualRuntime runtime(3);
  const auto never = runtime.NewEvent("never");
  const base::Status status =
      runtime.Run([&] { runtime.Spawn({.name = "stuck"}, [&] { never->Wait(); })->Join(); });
  EXPECT_THAT(status.message(), AllOf(HasSubstr("task 'main' waits for the end of task 'stuck'"),
                                      HasSubstr("task 'stuck' waits for event 'never'")));
}

// Two tasks share a free slot: each looks, waits a moment, then takes it.
int SlotsLeftAfterCheckThenAct(uint64_t seed, uint64_t* trace_hash) {
  VirtualRuntime runtime(seed);
  int free_slots = 1;
  const auto status = runtime.Run([&] {
    const auto take = [&] {
      if (free_slots == 0) return;
      runtime.Yield();
      --free_slots;
    };
    const auto task = runtime.Spawn({.name = "rank 1"}, take);
    take();
  });
  EXPECT_TRUE(status.ok());
  *trace_hash = runtime.trace_hash();
  return free_slots;
}

TEST(VirtualRuntime, FindsCheckThenActAcrossAWaitAndReplaysIt) {
  int right = 0, wrong = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    uint64_t hash = 0, replayed_hash = 0;
    const int left = SlotsLeftAfterCheckThenAct(seed, &hash);
    left == 0 ? ++right : ++wrong;
    EXPECT_EQ(SlotsLeftAfterCheckThenAct(seed, &replayed_hash), left);
    EXPECT_EQ(replayed_hash, hash);
  }
  EXPECT_GT(right, 0);
  EXPECT_GT(wrong, 0);
}

TEST(VirtualRuntime, ManyShortTasks) {
  VirtualRuntime runtime(5);
  int ended = 0;
  ASSERT_TRUE(runtime
                  .Run([&] {
                    for (int i = 0; i < 2000; ++i) {
                      const auto task = runtime.Spawn({.name = "short"}, [&] { ++ended; });
                    }
                  })
                  .ok());
  EXPECT_EQ(ended, 2000);
}

}  // namespace
}  // namespace forebay::runtime
