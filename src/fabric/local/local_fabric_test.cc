#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cmath>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/units.h"
#include "device/hazard_checker.h"
#include "fabric/fabric.h"
#include "runtime/testing/on_both_runtimes.h"

namespace forebay::fabric {
namespace {

using base::kMiB;
using device::CopyKind;
using device::Region;
using runtime::Runtime;

constexpr uint64_t kSourceBytes = 3 * kMiB;

// Ranks with a device, a published region "source" of distinct bytes and a region "slots" to pull
// into.
struct Rank {
  Rank(Runtime& runtime, std::unique_ptr<Fabric> own_fabric, device::HazardChecker* checker)
      : fabric(std::move(own_fabric)) {
    device = device::CreateCpuDevice(runtime, {.rank = fabric->rank(),
                                               .memory_bytes = 32 * kMiB,
                                               .scratch_bytes = 4096,
                                               .checker = checker,
                                               .max_virtual_delay = 50,
                                               .seed = 1})
                 .value();
    source = device->arena().Allocate("source", kSourceBytes).value();
    slots = device->arena().Allocate("slots", 2 * kSourceBytes).value();
    for (uint64_t i = 0; i < kSourceBytes; ++i)
      source->data[i] = static_cast<std::byte>(i / 13 + 101 * fabric->rank());
    EXPECT_TRUE(fabric->Publish(*source).ok());
  }
  device::Stream& stream() { return device->copy(CopyKind::kWeights); }

  std::unique_ptr<Fabric> fabric;
  std::unique_ptr<device::Device> device;
  const Region* source;
  const Region* slots;
};

class LocalFabricTest : public runtime::OnBothRuntimes {
 protected:
  void RunRanks(int num_ranks,
                const std::function<void(Runtime&, std::vector<std::unique_ptr<Rank>>&)>& body) {
    Run(
        [&](Runtime& runtime) {
          device::HazardChecker checker;
          std::vector<std::unique_ptr<Rank>> ranks;
          for (auto& fabric : CreateLocalFabric(runtime, num_ranks)) {
            ranks.push_back(std::make_unique<Rank>(runtime, std::move(fabric), &checker));
          }
          body(runtime, ranks);
          for (auto& rank : ranks) EXPECT_TRUE(rank->device->Synchronize(rank->stream()).ok());
          EXPECT_TRUE(checker.status().ok()) << checker.status().ToString();
        },
        3);
  }
};
FB_ON_BOTH_RUNTIMES(LocalFabricTest);

// Both ranks pull all of the other's source at the same time, in slices that do not divide it.
TEST_P(LocalFabricTest, TwoRanksPullFromEachOther) {
  RunRanks(2, [](Runtime& runtime, std::vector<std::unique_ptr<Rank>>& ranks) {
    std::vector<std::unique_ptr<runtime::Task>> tasks;
    for (int me = 0; me < 2; ++me) {
      tasks.push_back(runtime.Spawn({.name = "rank " + std::to_string(me)}, [&, me] {
        Rank& rank = *ranks[me];
        const CopyPlan plan{.spans = {{.rank = 1 - me,
                                       .region = rank.source->id,
                                       .offset = 100,
                                       .bytes = kSourceBytes - 100,
                                       .destination = rank.slots->data}},
                            .slice_bytes = 100'000};
        ASSERT_TRUE(rank.fabric->Pull(rank.stream(), plan, {}, {}).ok());
        ASSERT_TRUE(rank.device->Synchronize(rank.stream()).ok());
        EXPECT_EQ(
            std::memcmp(rank.slots->data, ranks[1 - me]->source->data + 100, kSourceBytes - 100),
            0);
        EXPECT_EQ(rank.slots->data[kSourceBytes - 100], std::byte{0});
        EXPECT_EQ(rank.fabric->bytes_pulled(), kSourceBytes - 100);
      }));
    }
  });
}

struct WantArgs {
  int32_t* offsets;
};
void Want(const WantArgs& args, const device::WorkerContext& context) {
  constexpr int32_t kOffsets[] = {0, 1, 2, 2, 2, 2, 2, 2, 5, 5, 6, 8};
  if (context.worker == 0) std::ranges::copy(kOffsets, args.offsets);
}

TEST_P(LocalFabricTest, WantedItemsAloneArriveAndEventsFollowThem) {
  RunRanks(2, [](Runtime&, std::vector<std::unique_ptr<Rank>>& ranks) {
    Rank& rank = *ranks[0];
    constexpr uint64_t kPart = 1000;
    CopyPlan plan{.slice_bytes = 300};
    for (int part = 0; part < 4; ++part) {
      for (const uint64_t half : {0, 1}) {
        const uint64_t offset = part * kPart + half * kPart / 2;
        plan.spans.push_back(
            {1, rank.source->id, offset, kPart / 2, rank.slots->data + offset, part, 3 * part, 2});
      }
    }
    std::vector<std::unique_ptr<device::DeviceEvent>> events;
    std::vector<device::DeviceEvent*> part_events;
    for (int part = 0; part < 3; ++part)
      part_events.push_back(events.emplace_back(rank.device->NewEvent()).get());
    // Part p pulls its items 3 p and 3 p + 1, twice: none of part 1 is wanted, the second of part
    // 2, both of the others.
    int32_t wanted[12] = {};
    device::DeviceEvent& known = *events.emplace_back(rank.device->NewEvent());
    device::Stream& compute = rank.device->compute();
    compute.Enqueue(device::MakeOperation<&Want>({.label = "want"}, WantArgs{wanted})
                        .Writes(wanted, sizeof(wanted)));
    compute.Record(known);
    rank.stream().Wait(known);
    // The plan is pulled before anybody knows what is wanted.
    ASSERT_TRUE(rank.fabric->Pull(rank.stream(), plan, wanted, part_events).ok());
    // By part and quarter: whether it has arrived; else nothing has.
    const auto arrived = [&](int part, int quarter) {
      const uint64_t at = part * kPart + quarter * kPart / 4;
      const std::vector<std::byte> nothing(kPart / 4);
      const bool equal =
          std::memcmp(rank.slots->data + at, ranks[1]->source->data + at, kPart / 4) == 0;
      EXPECT_TRUE(equal || std::memcmp(rank.slots->data + at, nothing.data(), kPart / 4) == 0);
      return equal;
    };
    for (const int part : {0, 1, 2}) {
      EXPECT_TRUE(rank.device->WaitFor(*part_events[part]));
      for (const int quarter : {0, 1, 2, 3}) {
        EXPECT_EQ(arrived(part, quarter), part == 0 || (part == 2 && quarter % 2 == 1))
            << part << " " << quarter;
      }
    }
    ASSERT_TRUE(rank.device->Synchronize(rank.stream()).ok());
    for (const int quarter : {0, 1, 2, 3}) EXPECT_TRUE(arrived(3, quarter));
    EXPECT_EQ(rank.fabric->bytes_pulled(), 0u);  // who knows what is wanted counts
  });
}

// A stream that writes down what it is given.
class RecordingStream final : public device::Stream {
 public:
  void Enqueue(const device::Operation& operation) override {
    sources.push_back(static_cast<const std::byte*>(operation.accesses[0].data));
    EXPECT_FALSE(operation.accesses[0].write);
    EXPECT_TRUE(operation.accesses[1].write);
    EXPECT_EQ(operation.accesses[1].bytes, operation.accesses[0].bytes);
  }
  void Record(device::DeviceEvent& event) override { recorded_after.push_back(sources.size()); }
  void Wait(const device::DeviceEvent& event) override {}
  void Post(device::Counter& counter, uint64_t value) override {}
  void Await(device::Counter& counter, uint64_t value) override {}

  std::vector<const std::byte*> sources;
  std::vector<size_t> recorded_after;
};

TEST_P(LocalFabricTest, RotatedSlicesTakeTurnsFromTheNextPeerOn) {
  RunRanks(3, [](Runtime&, std::vector<std::unique_ptr<Rank>>& ranks) {
    Rank& rank = *ranks[1];
    CopyPlan plan{.slice_bytes = 10, .order = PeerOrder::kRotated};
    for (const int peer : {0, 1, 2})
      plan.spans.push_back({peer, 1, 0, 20, rank.slots->data + 20 * peer, peer});
    const auto event = rank.device->NewEvent();
    const std::vector<device::DeviceEvent*> part_events(3, event.get());
    RecordingStream stream;
    ASSERT_TRUE(rank.fabric->Pull(stream, plan, {}, part_events).ok());
    const std::byte* const from[] = {ranks[0]->source->data, ranks[1]->source->data,
                                     ranks[2]->source->data};
    EXPECT_THAT(stream.sources, testing::ElementsAre(from[2], from[0], from[1], from[2] + 10,
                                                     from[0] + 10, from[1] + 10));
    EXPECT_THAT(stream.recorded_after, testing::ElementsAre(4, 5, 6));
    EXPECT_EQ(rank.fabric->bytes_pulled(), 40u);  // what is its own is copied but not counted

    plan.order = PeerOrder::kAsListed;
    stream = {};
    ASSERT_TRUE(rank.fabric->Pull(stream, plan, {}, part_events).ok());
    EXPECT_THAT(stream.sources, testing::ElementsAre(from[0], from[0] + 10, from[1], from[1] + 10,
                                                     from[2], from[2] + 10));
    EXPECT_THAT(stream.recorded_after, testing::ElementsAre(2, 4, 6));
  });
}

TEST_P(LocalFabricTest, OrdersOfPeers) {
  RunRanks(4, [](Runtime&, std::vector<std::unique_ptr<Rank>>& ranks) {
    Rank& rank = *ranks[1];
    CopyPlan plan{.slice_bytes = 10};
    // Two spans of each peer, which are not adjacent.
    for (const uint64_t offset : {0, 20}) {
      for (const int peer : {0, 2, 3})
        plan.spans.push_back({peer, 1, offset, 20, rank.slots->data + 40 * peer + offset, peer});
    }
    // The peers of the slices, as digits of a number.
    const auto peers = [&](PeerOrder order, uint64_t seed) {
      plan.order = order;
      plan.seed = seed;
      int64_t digits = 0;
      std::map<int, int> slices;
      const PreparedPull pull = rank.fabric->Prepare(plan).value();
      for (const PreparedPull::Slice& slice : pull.slices) {
        digits = 10 * digits + slice.part;
        EXPECT_EQ(slice.ends_part, ++slices[slice.part] == 4);
      }
      return digits;
    };
    EXPECT_EQ(peers(PeerOrder::kRotated, 0), 230230230230);
    EXPECT_EQ(peers(PeerOrder::kSliced, 0), 23023023023);  // the first digit is a zero
    EXPECT_EQ(peers(PeerOrder::kSerial, 0), 22223333);
    std::set<int64_t> drawn;
    for (uint64_t seed = 0; seed < 100; ++seed) drawn.insert(peers(PeerOrder::kRandom, seed));
    EXPECT_THAT(drawn, testing::ElementsAre(22223333, 33332222, 222200003333, 222233330000,
                                            333300002222, 333322220000));
    EXPECT_EQ(peers(PeerOrder::kRandom, 7), peers(PeerOrder::kRandom, 7));
  });
}

// Four ranks pull from all others at once, and we count those that read the source that the second
// one reads first. By chance the others do with probability 1/3 each, the source itself never
// (DWDP, Table 2).
TEST_P(LocalFabricTest, PullsMeetAtASourceByTheOrderOfPeers) {
  RunRanks(4, [](Runtime&, std::vector<std::unique_ptr<Rank>>& ranks) {
    const auto first_source = [&](int own, PeerOrder order, uint64_t seed) {
      CopyPlan plan{.slice_bytes = 10, .order = order, .seed = seed};
      for (int peer = 0; peer < 4; ++peer) {
        if (peer != own)
          plan.spans.push_back({peer, 1, 0, 10, ranks[own]->slots->data + 10 * peer, peer});
      }
      return ranks[own]->fabric->Prepare(plan).value().slices.front().part;
    };
    const auto meeting = [&](PeerOrder order, uint64_t trial) {
      const int source = first_source(1, order, 4 * trial + 1);
      int pulls = 0;
      for (int rank = 0; rank < 4; ++rank) {
        if (rank != source) pulls += first_source(rank, order, 4 * trial + rank) == source;
      }
      return pulls;
    };
    EXPECT_EQ(meeting(PeerOrder::kRotated, 0), 1);
    EXPECT_EQ(meeting(PeerOrder::kSerial, 0), 3);
    EXPECT_EQ(meeting(PeerOrder::kSliced, 0), 3);
    constexpr int kTrials = 2000;
    std::map<int, double> met;
    for (int trial = 0; trial < kTrials; ++trial) met[meeting(PeerOrder::kRandom, trial)] += 1;
    for (const auto& [pulls, probability] : {std::pair(1, 4. / 9), {2, 4. / 9}, {3, 1. / 9}}) {
      const double sigma = std::sqrt(probability * (1 - probability) / kTrials);
      EXPECT_NEAR(met[pulls] / kTrials, probability, 3 * sigma) << pulls;
    }
  });
}

TEST_P(LocalFabricTest, PeersRegionsAreFoundByName) {
  RunRanks(2, [](Runtime&, std::vector<std::unique_ptr<Rank>>& ranks) {
    EXPECT_EQ(ranks[0]->fabric->FindRegion(1, "source").value(), ranks[1]->source);
    EXPECT_EQ(ranks[1]->fabric->FindRegion(1, "source").value(), ranks[1]->source);
    const base::Status status = ranks[0]->fabric->FindRegion(1, "slots").status();
    EXPECT_EQ(status.code(), kUnknownRegion);
    EXPECT_THAT(status.message(), testing::HasSubstr("rank 0 looks for region 'slots' of rank 1"));
  });
}

TEST_P(LocalFabricTest, ErrorsNameWhatWasAskedForAndPullNothing) {
  RunRanks(2, [](Runtime&, std::vector<std::unique_ptr<Rank>>& ranks) {
    Rank& rank = *ranks[0];
    const auto pull = [&](const CopySpan& span) {
      return rank.fabric->Pull(rank.stream(), {.spans = {{1, 1, 0, 64, rank.slots->data}, span}},
                               {}, {});
    };
    const base::Status unknown = pull({1, 7, 5, 64, rank.slots->data});
    EXPECT_EQ(unknown.code(), kUnknownRegion);
    EXPECT_THAT(unknown.message(),
                testing::HasSubstr("64 bytes at offset 5 of region 7 of rank 1"));
    const base::Status outside = pull({1, 1, kSourceBytes - 63, 64, rank.slots->data});
    EXPECT_EQ(outside.code(), kOutOfRange);
    EXPECT_THAT(outside.message(),
                testing::HasSubstr("64 bytes at offset 3145665 of region 1 ('source') of rank 1, "
                                   "which has 3145728 bytes"));
    EXPECT_EQ(pull({1, 1, UINT64_MAX, 64, rank.slots->data}).code(), kOutOfRange);
    EXPECT_TRUE(pull({1, 1, kSourceBytes - 64, 64, rank.slots->data}).ok());
    EXPECT_EQ(rank.fabric->bytes_pulled(), 128u);
  });
}

}  // namespace
}  // namespace forebay::fabric
