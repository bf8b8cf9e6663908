#include "runtime/runtime.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <limits>
#include <memory>
#include <vector>

#include "runtime/real/real_runtime.h"
#include "runtime/testing/on_both_runtimes.h"

namespace forebay::runtime {
namespace {

constexpr TimeNs kMs = 1'000'000;

using RuntimeTest = OnBothRuntimes;
FB_ON_BOTH_RUNTIMES(RuntimeTest);

TEST_P(RuntimeTest, SleepTakesItsTime) {
  Run([](Runtime& runtime) {
    const TimeNs start = runtime.Now();
    runtime.Sleep(2 * kMs);
    EXPECT_GE(runtime.Now() - start, 2 * kMs);
    runtime.Sleep(-1);
  });
}

TEST_P(RuntimeTest, JoinWaitsForTheTask) {
  Run([](Runtime& runtime) {
    int value = 0;
    const auto task = runtime.Spawn({.name = "child"}, [&] {
      runtime.Sleep(kMs);
      value = 7;
    });
    task->Join();
    EXPECT_EQ(value, 7);
    task->Join();
    {
      const auto joined_by_scope = runtime.Spawn({.name = "child"}, [&] { value = 8; });
    }
    EXPECT_EQ(value, 8);
  });
}

TEST_P(RuntimeTest, EventStaysSetUntilReset) {
  Run([](Runtime& runtime) {
    const auto event = runtime.NewEvent("event");
    EXPECT_FALSE(event->IsSet());
    EXPECT_FALSE(event->Wait(0));
    event->Set();
    EXPECT_TRUE(event->IsSet());
    EXPECT_TRUE(event->Wait(0));
    EXPECT_TRUE(event->Wait());
    event->Reset();
    EXPECT_FALSE(event->Wait(kMs));
  });
}

TEST_P(RuntimeTest, WaitTimesOutAndTimeGoesOn) {
  Run([](Runtime& runtime) {
    const auto event = runtime.NewEvent("never set");
    const TimeNs start = runtime.Now();
    EXPECT_FALSE(event->Wait(3 * kMs));
    EXPECT_GE(runtime.Now() - start, 3 * kMs);
  });
}

TEST_P(RuntimeTest, SetWakesEveryWaiter) {
  Run([](Runtime& runtime) {
    const auto event = runtime.NewEvent("event");
    std::atomic<int> woken = 0;
    std::vector<std::unique_ptr<Task>> tasks;
    for (int i = 0; i < 5; ++i) {
      tasks.push_back(runtime.Spawn({.name = "waiter"}, [&, i] {
        EXPECT_TRUE(i % 2 == 0 ? event->Wait() : event->Wait(60'000 * kMs));
        ++woken;
      }));
    }
    runtime.Sleep(kMs);
    EXPECT_EQ(woken, 0);
    event->Set();
    tasks.clear();
    EXPECT_EQ(woken, 5);
  });
}

// Two tasks hand a counter to and fro: every wake-up must arrive.
TEST_P(RuntimeTest, PingPong) {
  Run(
      [](Runtime& runtime) {
        const auto ping = runtime.NewEvent("ping"), pong = runtime.NewEvent("pong");
        constexpr int kRounds = 2000;
        int counter = 0;
        const auto take_turns = [&](Event& mine, Event& other) {
          for (int i = 0; i < kRounds; ++i) {
            mine.Wait();
            mine.Reset();
            ++counter;
            other.Set();
          }
        };
        const auto task = runtime.Spawn({.name = "pong"}, [&] { take_turns(*pong, *ping); });
        ping->Set();
        take_turns(*ping, *pong);
        task->Join();
        EXPECT_EQ(counter, 2 * kRounds);
      },
      5);
}

// The waiter destroys the event as soon as it is woken.
TEST_P(RuntimeTest, WokenWaiterMayDestroyTheEvent) {
  Run(
      [](Runtime& runtime) {
        for (int i = 0; i < 200; ++i) {
          auto event = runtime.NewEvent("short-lived");
          const auto setter =
              runtime.Spawn({.name = "setter"}, [event = event.get()] { event->Set(); });
          event->Wait();
          event.reset();
        }
      },
      3);
}

TEST_P(RuntimeTest, DenormalsAreFlushedFromBirthWhereAskedFor) {
  Run([](Runtime& runtime) {
    const auto halved = [](float value) {
      volatile float v = value;
      v = v * 0.5f;
      return v;
    };
    constexpr float kSmallest = std::numeric_limits<float>::min();
    const auto flushing = runtime.Spawn({.name = "flushing", .flush_denormals = true}, [&] {
      EXPECT_EQ(halved(kSmallest), 0.0f);
      const auto child =
          runtime.Spawn({.name = "keeping"}, [&] { EXPECT_GT(halved(kSmallest), 0.0f); });
      runtime.Yield();
      EXPECT_EQ(halved(kSmallest), 0.0f);
    });
    const auto keeping = runtime.Spawn({.name = "keeping"}, [&] {
      EXPECT_GT(halved(kSmallest), 0.0f);
      runtime.Yield();
      EXPECT_GT(halved(kSmallest), 0.0f);
    });
  });
}

// Bytes of this process' address space.
rlim_t MappedBytes() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

// Spawns tasks until the address space, which may not grow, holds no further stack. Stacks of
// threads that have ended may be used again before a new one is asked for.
void SpawnTooMany() {
  constexpr rlim_t kMegabyte = 1 << 20;
  rlimit limit;
  limit.rlim_cur = limit.rlim_max = MappedBytes() + kMegabyte;
  setrlimit(RLIMIT_AS, &limit);
  const auto runtime = CreateRealRuntime();
  const auto never = runtime->NewEvent("never");
  std::vector<std::unique_ptr<Task>> tasks;
  for (int i = 0; i < 100; ++i)
    tasks.push_back(runtime->Spawn({.name = "one too many"}, [&] { never->Wait(); }));
  _exit(0);
}

TEST(RealRuntimeTest, WithoutAThreadTheProcessEndsWithItsCode) {
  constexpr rlim_t kTerabyte = rlim_t{1} << 40;
  if (MappedBytes() > kTerabyte) GTEST_SKIP() << "a sanitizer maps more than a limit can name";
  EXPECT_EXIT(SpawnTooMany(), testing::ExitedWithCode(1),
              "error: no thread for the task one too many: .*\\[thread_unavailable\\]");
}

}  // namespace
}  // namespace forebay::runtime
