// The slot protocol of weight pulling, on two ranks of the virtual runtime, and what happens when
// it is wrong:
//
//   copy:     wait consumed[s] | pull the layer's weights into slot s | record ready[s]
//   compute:  wait ready[s]    | use slot s                          | record consumed[s]
//
// Each rank owns every second layer and pulls the others. At the end the ranks tell each other that
// they are done: the owner keeps its weights until nobody pulls them any more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "device/copy.h"
#include "device/hazard_checker.h"
#include "fabric/fabric.h"
#include "runtime/mailbox.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::fabric {
namespace {

using device::CopyKind;
using runtime::Mailbox;
using runtime::VirtualRuntime;

constexpr int kRanks = 2, kLayers = 12, kSlots = 2;
constexpr uint64_t kLayerBytes = 64;

enum class Protocol {
  kRight,
  kConsumedTooEarly,     // recorded before the kernel that reads the slot is enqueued
  kListenBeforeTelling,  // both ranks wait for the other's word before they give theirs
};

struct Outcome {
  base::Status status;  // how the run ended: a deadlock, or
  base::Status hazard;  // two operations that conflict
  bool right_bytes = true;
  uint64_t trace_hash = 0;
};

std::byte WeightByte(int layer) { return static_cast<std::byte>(layer + 1); }

class Rank {
 public:
  Rank(VirtualRuntime& runtime, std::unique_ptr<Fabric> fabric, device::HazardChecker& checker)
      : fabric_(std::move(fabric)),
        device_(device::CreateCpuDevice(runtime, {.rank = fabric_->rank(),
                                                  .memory_bytes = base::kMiB,
                                                  .scratch_bytes = 64,
                                                  .checker = &checker,
                                                  .max_virtual_delay = 100,
                                                  .seed = runtime.seed()})
                    .value()),
        weights_(device_->arena().Allocate("weights", kLayers * kLayerBytes).value()),
        slots_(device_->arena().Allocate("slots", kSlots * kLayerBytes).value()),
        used_(device_->arena().Allocate("used", kLayers * kLayerBytes).value()) {
    for (int layer = fabric_->rank(); layer < kLayers; layer += kRanks) {
      std::memset(weights_->data + layer * kLayerBytes, static_cast<int>(WeightByte(layer)),
                  kLayerBytes);
    }
    FB_CHECK(fabric_->Publish(*weights_).ok(), "publish");
    for (int slot = 0; slot < kSlots; ++slot) {
      ready_.push_back(device_->NewEvent());
      consumed_.push_back(device_->NewEvent());
      plans_.emplace_back();
    }
  }

  // `told` carries this rank's word, `heard` the peer's.
  void RunLayers(Protocol protocol, Mailbox<int>& told, Mailbox<int>& heard) {
    for (int layer = 0; layer < kLayers; ++layer) {
      const int owner = layer % kRanks;
      if (owner == fabric_->rank()) {
        Use(layer, weights_->data + layer * kLayerBytes);
      } else {
        const int slot = layer / kRanks % kSlots;
        Pull(layer, owner, slot);
        UseSlot(layer, slot, protocol);
      }
    }
    FB_CHECK(device_->Synchronize(device_->compute()).ok(), "no faults here");
    if (protocol == Protocol::kListenBeforeTelling) heard.Receive();
    told.Send(fabric_->rank());
    if (protocol != Protocol::kListenBeforeTelling) heard.Receive();
  }

  bool UsedTheRightBytes() const {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (uint64_t i = 0; i < kLayerBytes; ++i) {
        if (used_->data[layer * kLayerBytes + i] != WeightByte(layer)) return false;
      }
    }
    return true;
  }

 private:
  std::byte* Slot(int slot) { return slots_->data + slot * kLayerBytes; }

  void Pull(int layer, int owner, int slot) {
    device::Stream& copy = device_->copy(CopyKind::kWeights);
    copy.Wait(*consumed_[slot]);
    plans_[slot] = {.spans = {{owner, weights_->id, layer * kLayerBytes, kLayerBytes, Slot(slot)}},
                    .slice_bytes = 48};
    FB_CHECK(fabric_->Pull(copy, plans_[slot], {}, {}).ok(), "pull");
    copy.Record(*ready_[slot]);
  }

  void UseSlot(int layer, int slot, Protocol protocol) {
    device::Stream& compute = device_->compute();
    compute.Wait(*ready_[slot]);
    if (protocol == Protocol::kConsumedTooEarly) compute.Record(*consumed_[slot]);
    Use(layer, Slot(slot));
    if (protocol != Protocol::kConsumedTooEarly) compute.Record(*consumed_[slot]);
  }

  void Use(int layer, const std::byte* weights) {
    device_->compute().Enqueue(
        device::MakeCopy("use", used_->data + layer * kLayerBytes, weights, kLayerBytes));
  }

  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<device::Device> device_;
  const device::Region *weights_, *slots_, *used_;
  std::vector<std::unique_ptr<device::DeviceEvent>> ready_, consumed_;
  std::vector<CopyPlan> plans_;
};

Outcome RunProtocol(uint64_t seed, Protocol protocol) {
  VirtualRuntime runtime(seed);
  device::HazardChecker checker;
  Outcome outcome;
  outcome.status = runtime.Run([&] {
    std::vector<std::unique_ptr<Rank>> ranks;
    for (auto& fabric : CreateLocalFabric(runtime, kRanks)) {
      ranks.push_back(std::make_unique<Rank>(runtime, std::move(fabric), checker));
    }
    Mailbox<int> by_rank_0(runtime, "word of rank 0", 1), by_rank_1(runtime, "word of rank 1", 1);
    const auto peer = runtime.Spawn({.name = "rank 1 control"},
                                    [&] { ranks[1]->RunLayers(protocol, by_rank_1, by_rank_0); });
    ranks[0]->RunLayers(protocol, by_rank_0, by_rank_1);
    peer->Join();
    for (const auto& rank : ranks) outcome.right_bytes &= rank->UsedTheRightBytes();
  });
  outcome.hazard = checker.status();
  outcome.trace_hash = runtime.trace_hash();
  return outcome;
}

TEST(SlotProtocol, RightOnEverySeed) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const Outcome outcome = RunProtocol(seed, Protocol::kRight);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    ASSERT_TRUE(outcome.hazard.ok()) << "seed " << seed << ": " << outcome.hazard.ToString();
    ASSERT_TRUE(outcome.right_bytes) << "seed " << seed;
  }
}

TEST(SlotProtocol, ConsumedBeforeTheKernelIsFoundAndReplayed) {
  int found = 0, wrong_bytes = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Outcome outcome = RunProtocol(seed, Protocol::kConsumedTooEarly);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    wrong_bytes += !outcome.right_bytes;
    if (outcome.hazard.ok()) continue;
    ++found;
    EXPECT_THAT(outcome.hazard.message(), testing::AllOf(testing::HasSubstr("'use' on rank"),
                                                         testing::HasSubstr("'pull' on rank")));
    const Outcome replayed = RunProtocol(seed, Protocol::kConsumedTooEarly);
    EXPECT_EQ(replayed.hazard.message(), outcome.hazard.message());
    EXPECT_EQ(replayed.right_bytes, outcome.right_bytes);
    EXPECT_EQ(replayed.trace_hash, outcome.trace_hash);
  }
  EXPECT_GT(found, 10);
  EXPECT_GT(wrong_bytes, 0);
}

TEST(SlotProtocol, DeadlockNamesEveryTaskAndIsReplayed) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Outcome outcome = RunProtocol(seed, Protocol::kListenBeforeTelling);
    EXPECT_EQ(outcome.status.code(), runtime::kDeadlock);
    for (const char* part :
         {"task 'main' waits for event 'word of rank 1 has a message'",
          "task 'rank 1 control' waits for event 'word of rank 0 has a message'",
          "task 'rank 0 compute' waits for event 'commands for rank 0 compute'",
          "task 'rank 1 weights copy' waits for event 'commands for rank 1 weights copy'"}) {
      EXPECT_THAT(outcome.status.message(), testing::HasSubstr(part));
    }
    const Outcome replayed = RunProtocol(seed, Protocol::kListenBeforeTelling);
    EXPECT_EQ(replayed.status.message(), outcome.status.message());
    EXPECT_EQ(replayed.trace_hash, outcome.trace_hash);
  }
}

// Rank 0 overwrites a slot that rank 1 pulls from, again and again. A lease keeps them apart: who
// wants the slot looks whether the other has it, and takes it. Nothing may be waited for between
// the look and the taking.
Outcome RunLease(uint64_t seed, bool wait_between) {
  VirtualRuntime runtime(seed);
  device::HazardChecker checker;
  Outcome outcome;
  outcome.status = runtime.Run([&] {
    std::vector<std::unique_ptr<Fabric>> fabrics = CreateLocalFabric(runtime, kRanks);
    std::vector<std::unique_ptr<device::Device>> devices;
    std::vector<const device::Region*> slots;
    for (int rank = 0; rank < kRanks; ++rank) {
      devices.push_back(
          device::CreateCpuDevice(
              runtime,
              {.rank = rank, .memory_bytes = base::kMiB, .scratch_bytes = 64, .checker = &checker})
              .value());
      slots.push_back(devices[rank]->arena().Allocate("slot", 2 * kLayerBytes).value());
      FB_CHECK(fabrics[rank]->Publish(*slots[rank]).ok(), "publish");
    }
    int holders = 0;
    const auto under_lease = [&](int rank, const std::function<void(device::Stream&)>& enqueue) {
      for (int round = 0; round < 4; ++round) {
        while (holders > 0) runtime.Yield();
        if (wait_between) runtime.Yield();
        ++holders;
        device::Stream& copy = devices[rank]->copy(CopyKind::kKvUp);
        enqueue(copy);
        FB_CHECK(devices[rank]->Synchronize(copy).ok(), "no faults here");
        --holders;
      }
    };
    const CopyPlan plan{.spans = {{0, slots[0]->id, 0, kLayerBytes, slots[1]->data}}};
    const auto puller = runtime.Spawn({.name = "rank 1 control"}, [&] {
      under_lease(1, [&](device::Stream& copy) {
        FB_CHECK(fabrics[1]->Pull(copy, plan, {}, {}).ok(), "pull");
      });
    });
    under_lease(0, [&](device::Stream& copy) {
      copy.Enqueue(
          device::MakeCopy("overwrite", slots[0]->data, slots[0]->data + kLayerBytes, kLayerBytes));
    });
    puller->Join();
  });
  outcome.hazard = checker.status();
  outcome.trace_hash = runtime.trace_hash();
  return outcome;
}

TEST(SlotLease, CheckThenActAcrossAWaitIsFoundAndReplayed) {
  int found = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Outcome right = RunLease(seed, false);
    ASSERT_TRUE(right.status.ok() && right.hazard.ok())
        << "seed " << seed << ": " << right.hazard.ToString();
    const Outcome wrong = RunLease(seed, true);
    ASSERT_TRUE(wrong.status.ok()) << wrong.status.ToString();
    if (wrong.hazard.ok()) continue;
    ++found;
    EXPECT_THAT(wrong.hazard.message(),
                testing::AllOf(testing::HasSubstr("'overwrite' on rank 0 kv copy up"),
                               testing::HasSubstr("'pull' on rank 1 kv copy up")));
    const Outcome replayed = RunLease(seed, true);
    EXPECT_EQ(replayed.hazard.message(), wrong.hazard.message());
    EXPECT_EQ(replayed.trace_hash, wrong.trace_hash);
  }
  EXPECT_GT(found, 0);
  EXPECT_LT(found, 200);
}

}  // namespace
}  // namespace forebay::fabric
