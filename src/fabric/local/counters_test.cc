// Ranks that meet at counters in every round:
//
//   write own buffer[round % 2] | post round + 1 to all | await round + 1 of all | read all
//   buffers[round % 2]
//
// A rank that writes round r has awaited round r - 1 of all, who posted it after reading round r -
// 2: two buffers suffice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/units.h"
#include "device/hazard_checker.h"
#include "fabric/fabric.h"
#include "runtime/testing/on_both_runtimes.h"

namespace forebay::fabric {
namespace {

using runtime::Runtime;

constexpr int kRounds = 6, kChannel = 3, kMaxRanks = 8;
constexpr int64_t kValues = 64;
const base::Status kDied(base::kInvalidArgument, "rank 1 died");

enum class Protocol { kRight, kOneBuffer, kAwaitBeforePost };

struct WriteArgs {
  int64_t* out;
  int64_t value;
};
void Write(const WriteArgs& args, const device::WorkerContext& context) {
  const device::Range part = device::StaticPart(context, kValues);
  std::fill(args.out + part.begin, args.out + part.end, args.value);
}

struct SumArgs {
  const int64_t* in[kMaxRanks];
  int num_ranks;
  int64_t* out;
};
void Sum(const SumArgs& args, const device::WorkerContext& context) {
  const device::Range part = device::StaticPart(context, kValues);
  for (int64_t i = part.begin; i < part.end; ++i) {
    args.out[i] = 0;
    for (int rank = 0; rank < args.num_ranks; ++rank) args.out[i] += args.in[rank][i];
  }
}

class Rank {
 public:
  Rank(Runtime& runtime, std::unique_ptr<Fabric> own_fabric, device::HazardChecker& checker,
       uint64_t seed)
      : fabric(std::move(own_fabric)),
        device(device::CreateCpuDevice(runtime, {.rank = fabric->rank(),
                                                 .memory_bytes = base::kMiB,
                                                 .num_workers = 2,
                                                 .scratch_bytes = 64,
                                                 .checker = &checker,
                                                 .max_virtual_delay = 100,
                                                 .seed = seed})
                   .value()),
        buffers_(device->arena().Allocate("buffers", 2 * kValues * 8).value()),
        sums_(device->arena().Allocate("sums", kRounds * kValues * 8).value()) {
    FB_CHECK(fabric->Publish(*buffers_).ok(), "publish");
  }

  void Enqueue(int round, Protocol protocol) {
    device::Stream& stream = device->compute();
    const int buffer = protocol == Protocol::kOneBuffer ? 0 : round % 2;
    const WriteArgs write{Values(*buffers_, buffer), 100 * round + fabric->rank()};
    device::Operation operation = device::MakeOperation<&Write>({.label = "write"}, write);
    stream.Enqueue(operation.Writes(write.out, kValues * 8));
    const auto post = [&] {
      ForPeers([&](int peer) { fabric->Post(stream, peer, kChannel, round + 1); });
    };
    if (protocol != Protocol::kAwaitBeforePost) post();
    ForPeers([&](int peer) { fabric->Await(stream, peer, kChannel, round + 1); });
    if (protocol == Protocol::kAwaitBeforePost) post();
    SumArgs sum{.num_ranks = fabric->num_ranks(), .out = Values(*sums_, round)};
    for (int rank = 0; rank < fabric->num_ranks(); ++rank) {
      sum.in[rank] = Values(*fabric->FindRegion(rank, "buffers").value(), buffer);
    }
    operation = device::MakeOperation<&Sum>({.label = "sum"}, sum);
    for (int rank = 0; rank < fabric->num_ranks(); ++rank)
      operation.Reads(sum.in[rank], kValues * 8);
    stream.Enqueue(operation.Writes(sum.out, kValues * 8));
  }

  base::Status Finish() { return device->Synchronize(device->compute()); }

  bool RightSum(int round) const {
    const int64_t ranks = fabric->num_ranks();
    const int64_t* const sums = Values(*sums_, round);
    return std::all_of(sums, sums + kValues, [&](int64_t sum) {
      return sum == ranks * 100 * round + ranks * (ranks - 1) / 2;
    });
  }

  const std::unique_ptr<Fabric> fabric;
  const std::unique_ptr<device::Device> device;

 private:
  static int64_t* Values(const device::Region& region, int index) {
    return reinterpret_cast<int64_t*>(region.data) + index * kValues;
  }
  template <typename Visit>
  void ForPeers(Visit visit) {
    for (int peer = 0; peer < fabric->num_ranks(); ++peer) {
      if (peer != fabric->rank()) visit(peer);
    }
  }

  const device::Region *buffers_, *sums_;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

Ranks MakeRanks(Runtime& runtime, int num_ranks, device::HazardChecker& checker, uint64_t seed) {
  Ranks ranks;
  for (auto& fabric : CreateLocalFabric(runtime, num_ranks)) {
    ranks.push_back(std::make_unique<Rank>(runtime, std::move(fabric), checker, seed));
  }
  return ranks;
}

class CountersTest : public runtime::OnBothRuntimes {
 protected:
  void RunRanks(const std::function<void(Runtime&, Ranks&)>& body) {
    uint64_t seed = 0;
    for (const int num_ranks : {2, 3, 4, 8}) {
      Run(
          [&](Runtime& runtime) {
            device::HazardChecker checker;
            Ranks ranks = MakeRanks(runtime, num_ranks, checker, seed++);
            body(runtime, ranks);
            EXPECT_TRUE(checker.status().ok()) << checker.status().ToString();
          },
          20);
    }
  }
};
FB_ON_BOTH_RUNTIMES(CountersTest);

TEST_P(CountersTest, RanksOfOneControlTaskMeet) {
  RunRanks([](Runtime&, Ranks& ranks) {
    for (int round = 0; round < kRounds; ++round) {
      for (auto& rank : ranks) rank->Enqueue(round, Protocol::kRight);
    }
    for (auto& rank : ranks) EXPECT_TRUE(rank->Finish().ok());
    for (auto& rank : ranks) {
      for (int round = 0; round < kRounds; ++round) EXPECT_TRUE(rank->RightSum(round)) << round;
    }
  });
}

TEST_P(CountersTest, RanksWithTheirOwnControlTasksMeet) {
  RunRanks([](Runtime& runtime, Ranks& ranks) {
    std::vector<std::unique_ptr<runtime::Task>> tasks;
    for (auto& rank : ranks) {
      tasks.push_back(runtime.Spawn({.name = "control"}, [&] {
        for (int round = 0; round < kRounds; ++round) rank->Enqueue(round, Protocol::kRight);
        EXPECT_TRUE(rank->Finish().ok());
      }));
    }
    tasks.clear();
    double waited = 0;
    for (auto& rank : ranks) {
      EXPECT_TRUE(rank->RightSum(kRounds - 1));
      waited += rank->device->TimeOf(rank->device->compute()).waits[WaitCause::kPeer];
    }
    EXPECT_GT(waited, 0);
  });
}

// Rank 1 stops in the middle, and its control task says so: the others end with its fault, and run
// nothing after it.
TEST_P(CountersTest, ADeadRankHoldsNobody) {
  RunRanks([](Runtime& runtime, Ranks& ranks) {
    std::vector<std::unique_ptr<runtime::Task>> tasks;
    for (auto& rank : ranks) {
      tasks.push_back(runtime.Spawn({.name = "control"}, [&] {
        const bool dies = rank->fabric->rank() == 1;
        for (int round = 0; round < (dies ? 2 : kRounds); ++round)
          rank->Enqueue(round, Protocol::kRight);
        if (dies) {
          runtime.Sleep(1000);
          rank->fabric->Abort(kDied);
          rank->fabric->Abort({base::kIoError, "too late"});
          // What it has begun reads the others' memory, which ends with the ranks.
          static_cast<void>(rank->Finish());
          return;
        }
        EXPECT_EQ(rank->Finish().message(), kDied.message());
        EXPECT_EQ(rank->Finish().message(), kDied.message());
        EXPECT_EQ(rank->fabric->status().message(), kDied.message());
        EXPECT_FALSE(rank->RightSum(2));
        rank->Enqueue(0, Protocol::kRight);
        EXPECT_FALSE(rank->Finish().ok());
      }));
    }
  });
}

// On the virtual runtime: what went wrong, if anything.
struct Outcome {
  base::Status status, hazard;
  uint64_t trace_hash = 0;
};

Outcome RunProtocol(uint64_t seed, Protocol protocol) {
  runtime::VirtualRuntime runtime(seed);
  device::HazardChecker checker;
  Outcome outcome;
  outcome.status = runtime.Run([&] {
    Ranks ranks = MakeRanks(runtime, 3, checker, seed);
    for (int round = 0; round < kRounds; ++round) {
      for (auto& rank : ranks) rank->Enqueue(round, protocol);
    }
    for (auto& rank : ranks) FB_CHECK(rank->Finish().ok(), "no faults here");
  });
  outcome.hazard = checker.status();
  outcome.trace_hash = runtime.trace_hash();
  return outcome;
}

TEST(CounterProtocol, RightOnEverySeed) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Outcome outcome = RunProtocol(seed, Protocol::kRight);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    ASSERT_TRUE(outcome.hazard.ok()) << "seed " << seed << ": " << outcome.hazard.ToString();
  }
}

TEST(CounterProtocol, OneBufferIsFoundAndReplayed) {
  int found = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Outcome outcome = RunProtocol(seed, Protocol::kOneBuffer);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    if (outcome.hazard.ok()) continue;
    ++found;
    EXPECT_THAT(outcome.hazard.message(), testing::AllOf(testing::HasSubstr("'write' on rank"),
                                                         testing::HasSubstr("'sum' on rank")));
    const Outcome replayed = RunProtocol(seed, Protocol::kOneBuffer);
    EXPECT_EQ(replayed.hazard.message(), outcome.hazard.message());
    EXPECT_EQ(replayed.trace_hash, outcome.trace_hash);
  }
  EXPECT_GT(found, 10);
}

TEST(CounterProtocol, DeadlockNamesTheCounters) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Outcome outcome = RunProtocol(seed, Protocol::kAwaitBeforePost);
    EXPECT_EQ(outcome.status.code(), runtime::kDeadlock);
    for (const char* part :
         {"task 'main' waits for event 'progress of rank 0 compute'",
          "task 'rank 0 compute' waits for event 'progress of rank 1 for rank 0, channel 3'",
          "task 'rank 2 compute' waits for event 'progress of rank 0 for rank 2, channel 3'"}) {
      EXPECT_THAT(outcome.status.message(), testing::HasSubstr(part));
    }
  }
}

}  // namespace
}  // namespace forebay::fabric
