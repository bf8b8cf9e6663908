#include "device/cpu/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "runtime/testing/on_both_runtimes.h"

namespace forebay::device {
namespace {

using runtime::Runtime;

// With no spinning every wait of a worker goes to sleep: a lost wake-up hangs the test.
using TeamTest = runtime::OnBothRuntimes;
FB_ON_BOTH_RUNTIMES(TeamTest);

struct CountArgs {
  std::atomic<int>* calls;  // [workers]
  int barriers;
};
void Count(const CountArgs& args, const WorkerContext& context) {
  for (int i = 0; i < args.barriers; ++i) context.Barrier();
  ++args.calls[context.worker];
}

TEST_P(TeamTest, NoWakeUpIsLostWhenAllSleep) {
  for (const int num_workers : {2, 4}) {
    Run(
        [num_workers](Runtime& runtime) {
          constexpr int kOperations = 300;
          std::vector<std::atomic<int>> calls(num_workers);
          Team team(runtime, {.name = "team", .num_workers = num_workers, .spin = 0});
          for (int i = 0; i < kOperations; ++i) {
            team.Run(MakeOperation<&Count>({.label = "count"}, CountArgs{calls.data(), i % 4}));
            for (const auto& count : calls)
              ASSERT_EQ(count, i + 1);  // Run returns after all workers
          }
        },
        5);
  }
}

TEST_P(TeamTest, ATeamOfOneNeedsNobody) {
  Run([](Runtime& runtime) {
    std::atomic<int> calls = 0;
    Team team(runtime, {.name = "team"});
    team.Run(MakeOperation<&Count>({.label = "count"}, CountArgs{&calls, 3}));
    EXPECT_EQ(calls, 1);
  });
}

TEST(StaticPart, PartsCoverEverythingOnce) {
  for (const int64_t total : {0, 1, 7, 64, 1000}) {
    for (const int64_t grain : {1, 16}) {
      int64_t next = 0;
      struct Context final : WorkerContext {
        void Barrier() const override {}
      } context;
      context.num_workers = 3;
      for (context.worker = 0; context.worker < context.num_workers; ++context.worker) {
        const Range part = StaticPart(context, total, grain);
        EXPECT_EQ(part.begin, next);
        EXPECT_TRUE(part.end == total || part.end % grain == 0);
        next = part.end;
      }
      EXPECT_EQ(next, total);
    }
  }
}

}  // namespace
}  // namespace forebay::device
