#include "fabric/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/part.h"
#include "base/units.h"
#include "device/copy.h"
#include "device/hazard_checker.h"
#include "runtime/testing/on_both_runtimes.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::fabric {
namespace {

using runtime::Runtime;

constexpr uint64_t kPartBytes = 1000;

struct Rank {
  Rank(Runtime& runtime, std::unique_ptr<Fabric> own_fabric, device::HazardChecker& checker,
       uint64_t seed)
      : fabric(std::move(own_fabric)),
        device(device::CreateCpuDevice(runtime, {.rank = fabric->rank(),
                                                 .memory_bytes = base::kMiB,
                                                 .num_workers = fabric->rank() % 2 + 1,
                                                 .scratch_bytes = 64,
                                                 .checker = &checker,
                                                 .max_virtual_delay = 100,
                                                 .seed = seed})
                   .value()),
        staging(device->arena().Allocate("staging", Exchange::StagingBytes(kPartBytes)).value()),
        source(device->arena().Allocate("source", 64 * base::kKiB).value()),
        out(device->arena().Allocate("out", 64 * base::kKiB).value()) {
    FB_CHECK(fabric->Publish(*staging).ok(), "publish");
  }
  device::Stream& stream() { return device->compute(); }
  base::Status Finish() { return device->Synchronize(stream()); }

  const std::unique_ptr<Fabric> fabric;
  const std::unique_ptr<device::Device> device;
  const device::Region *staging, *source, *out;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

Communicator Everyone(const Rank& rank) {
  Communicator communicator{.my_index = rank.fabric->rank()};
  for (int r = 0; r < rank.fabric->num_ranks(); ++r) communicator.ranks.push_back(r);
  return communicator;
}

class CollectivesTest : public runtime::OnBothRuntimes {
 protected:
  void RunRanks(const std::vector<int>& counts, const std::function<void(Runtime&, Ranks&)>& body) {
    uint64_t seed = 0;
    for (const int num_ranks : counts) {
      Run(
          [&](Runtime& runtime) {
            device::HazardChecker checker;
            Ranks ranks;
            for (auto& fabric : CreateLocalFabric(runtime, num_ranks)) {
              ranks.push_back(std::make_unique<Rank>(runtime, std::move(fabric), checker, seed++));
            }
            body(runtime, ranks);
            for (auto& rank : ranks) EXPECT_TRUE(rank->Finish().ok());
            EXPECT_TRUE(checker.status().ok()) << checker.status().ToString();
          },
          30);
    }
  }
};
FB_ON_BOTH_RUNTIMES(CollectivesTest);

// A matrix of 5 rows whose columns are split over the ranks, gathered again and again, in each
// round with other values.
TEST_P(CollectivesTest, AllGatherOfColumns) {
  RunRanks({1, 2, 3, 4, 8}, [](Runtime&, Ranks& ranks) {
    constexpr int64_t kRows = 5, kColumns = 61, kRounds = 5;
    const auto count = static_cast<int>(ranks.size());
    std::vector<GatherBlock> blocks;
    for (int r = 0; r < count; ++r) {
      // Rank 2 has nothing.
      const base::Part columns =
          base::EvenPart(kColumns, count > 2 ? count - 1 : count, r > 2 ? r - 1 : r);
      const bool none = count > 2 && r == 2;
      blocks.push_back({.rows = none ? 0 : kRows,
                        .offset = static_cast<uint64_t>(columns.begin),
                        .bytes = static_cast<uint64_t>(columns.size())});
    }
    const auto value = [](int64_t round, int64_t row, int64_t column) {
      return static_cast<std::byte>(round * 89 + row * 37 + column);
    };
    for (auto& rank : ranks) {
      const GatherBlock& mine = blocks[rank->fabric->rank()];
      for (int64_t i = 0; i < kRounds * mine.rows * static_cast<int64_t>(mine.bytes); ++i) {
        const int64_t row = i / static_cast<int64_t>(mine.bytes),
                      column = i % static_cast<int64_t>(mine.bytes);
        rank->source->data[i] =
            value(row / kRows, row % kRows, static_cast<int64_t>(mine.offset) + column);
      }
    }
    std::vector<Exchange> exchanges;
    for (auto& rank : ranks) {
      exchanges.push_back(
          Exchange::Create(*rank->fabric, Everyone(*rank), *rank->staging, kTensorChannel).value());
    }
    constexpr int64_t kStride = kColumns + 3;
    for (int64_t round = 0; round < kRounds; ++round) {
      for (int r = 0; r < count; ++r) {
        const uint64_t bytes = blocks[r].rows * blocks[r].bytes;
        if (bytes > 0) {
          ranks[r]->stream().Enqueue(device::MakeCopy(
              "write", exchanges[r].mine(), ranks[r]->source->data + round * bytes, bytes));
        }
        AllGather(ranks[r]->stream(), exchanges[r], "all_gather", blocks,
                  ranks[r]->out->data + round * kRows * kStride, kStride);
      }
    }
    for (auto& rank : ranks) {
      ASSERT_TRUE(rank->Finish().ok());
      for (int64_t i = 0; i < kRounds * kRows * kStride; ++i) {
        const int64_t row = i / kStride, column = i % kStride;
        ASSERT_EQ(rank->out->data[i],
                  column < kColumns ? value(row / kRows, row % kRows, column) : std::byte{0});
      }
    }
  });
}

// Micro-batches through a chain of stages: each adds its name to what it received.
TEST_P(CollectivesTest, HandoverThroughAllStages) {
  RunRanks({2, 3, 4, 8}, [](Runtime& runtime, Ranks& ranks) {
    constexpr int kMessages = 7;
    constexpr uint64_t kRow = 100;
    const auto stages = static_cast<int>(ranks.size());
    std::vector<std::unique_ptr<runtime::Task>> tasks;
    for (int stage = 0; stage < stages; ++stage) {
      tasks.push_back(runtime.Spawn({.name = "stage"}, [&, stage] {
        Rank& rank = *ranks[stage];
        std::byte* const rows = rank.out->data;  // one message's rows: overwritten by the next
        std::unique_ptr<Handover> from_last, to_next;
        if (stage > 0) {
          from_last = std::make_unique<Handover>(
              Handover::Create(*rank.fabric, stage - 1, stage, "staging").value());
        }
        if (stage + 1 < stages) {
          to_next = std::make_unique<Handover>(
              Handover::Create(*rank.fabric, stage, stage + 1, "staging").value());
        }
        for (uint64_t i = 0; i < kRow * stages; ++i)
          rank.source->data[i] = static_cast<std::byte>(stage + 1);
        for (int message = 0; message < kMessages; ++message) {
          // Lengths differ from message to message.
          const uint64_t bytes = kRow * stages - message;
          if (from_last) {
            from_last->Receive(rank.stream(), rows, bytes);
          } else {
            rank.stream().Enqueue(device::MakeCopy("begin", rows, rank.source->data, bytes));
          }
          rank.stream().Enqueue(device::MakeCopy("work", rows + stage * kRow,
                                                 rank.source->data + message, kRow - kMessages));
          if (to_next) to_next->Send(rank.stream(), rows, bytes);
          rank.stream().Enqueue(
              device::MakeCopy("keep", rank.out->data + 2048 * (message + 1), rows, bytes));
        }
        ASSERT_TRUE(rank.Finish().ok());
      }));
    }
    tasks.clear();
    const Rank& last = *ranks.back();
    for (int message = 0; message < kMessages; ++message) {
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(last.out->data[2048 * (message + 1) + stage * kRow],
                  static_cast<std::byte>(stage + 1))
            << message;
      }
    }
  });
}

// In how many of 40 interleavings two operations touch a part of staging at once.
int Hazards(int num_ranks, const std::function<void(Ranks&)>& body) {
  int seen = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    runtime::VirtualRuntime runtime(seed);
    EXPECT_TRUE(runtime
                    .Run([&] {
                      device::HazardChecker checker;
                      Ranks ranks;
                      for (auto& fabric : CreateLocalFabric(runtime, num_ranks)) {
                        ranks.push_back(
                            std::make_unique<Rank>(runtime, std::move(fabric), checker, seed));
                      }
                      body(ranks);
                      for (auto& rank : ranks) (void)rank->Finish();
                      seen += checker.status().ok() ? 0 : 1;
                    })
                    .ok());
  }
  return seen;
}

void Write(Rank& rank, std::byte* part) {
  rank.stream().Enqueue(device::MakeCopy("write", part, rank.source->data, kPartBytes));
}

// All copy all parts.
void Read(Rank& rank, Exchange& exchange) {
  std::vector<GatherBlock> blocks;
  for (int i = 0; i < exchange.num_ranks(); ++i)
    blocks.push_back({.row = i, .rows = 1, .bytes = kPartBytes});
  AllGather(rank.stream(), exchange, "read", blocks, rank.out->data, kPartBytes);
}

// Who writes a half again before the next meeting writes what others still read.
TEST(Collectives, StagingThatIsReusedEarlyIsSeen) {
  for (const bool early : {false, true}) {
    const int seen = Hazards(3, [&](Ranks& ranks) {
      std::vector<Exchange> exchanges;
      for (auto& rank : ranks) {
        exchanges.push_back(
            Exchange::Create(*rank->fabric, Everyone(*rank), *rank->staging, kTensorChannel)
                .value());
      }
      for (int round = 0; round < 4; ++round) {
        for (size_t r = 0; r < ranks.size(); ++r) {
          std::byte* const same = ranks[r]->staging->data;
          Write(*ranks[r], early ? same : exchanges[r].mine());
          Read(*ranks[r], exchanges[r]);
        }
      }
    });
    EXPECT_EQ(seen > 0, early) << seen;
  }
}

// Groups of two kinds that have one region in turns: between the last meeting of the one and the
// first of the other all must meet.
TEST(Collectives, GroupsOfTwoKindsThatShareStagingAreSeen) {
  for (const bool meet_between : {true, false}) {
    const int seen = Hazards(4, [&](Ranks& ranks) {
      std::vector<Exchange> rows, columns, all;
      for (auto& rank : ranks) {
        const int r = rank->fabric->rank();
        const auto make = [&](std::vector<int> members, int index, int channel) {
          return Exchange::Create(*rank->fabric, {std::move(members), index}, *rank->staging,
                                  channel)
              .value();
        };
        rows.push_back(make({r / 2 * 2, r / 2 * 2 + 1}, r % 2, kTensorChannel));
        columns.push_back(make({r % 2, r % 2 + 2}, r / 2, kSequenceChannel));
        all.push_back(make({0, 1, 2, 3}, r, kHeadChannel));
      }
      for (int round = 0; round < 3; ++round) {
        for (std::vector<Exchange>* kind : {&rows, &columns}) {
          for (size_t r = 0; r < ranks.size(); ++r) {
            Write(*ranks[r], (*kind)[r].mine());
            Read(*ranks[r], (*kind)[r]);
            if (meet_between) all[r].Meet(ranks[r]->stream());
          }
        }
      }
    });
    EXPECT_EQ(seen == 0, meet_between) << seen;
  }
}

TEST_P(CollectivesTest, WhatCannotMeetIsRefused) {
  RunRanks({2}, [](Runtime& runtime, Ranks& ranks) {
    const device::Region* const other = ranks[0]->device->arena().Allocate("other", 128).value();
    EXPECT_EQ(Exchange::Create(*ranks[0]->fabric, Everyone(*ranks[0]), *other, kTensorChannel)
                  .status()
                  .code(),
              kUnknownRegion);
    EXPECT_EQ(Handover::Create(*ranks[0]->fabric, 1, 0, "other").status().code(), kUnknownRegion);
    const Communicator many{.ranks = std::vector<int>(Exchange::kMostRanks + 1)};
    EXPECT_EQ(Exchange::Create(*ranks[0]->fabric, many, *ranks[0]->staging, 0).status().code(),
              base::kInvalidArgument);
    EXPECT_GE(Exchange::Create(*ranks[0]->fabric, Everyone(*ranks[0]), *ranks[0]->staging, 0)
                  ->part_bytes(),
              kPartBytes);
  });
}

}  // namespace
}  // namespace forebay::fabric
