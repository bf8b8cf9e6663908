// The slot protocol on eight simulated ranks. A layer is eight tiles, one owned by each rank; every rank pulls the
// other seven, in rotation, into the layer's slot:
//
//   copy:     wait consumed[s] | pull seven tiles into slot s | record ready[s]
//   compute:  wait ready[s]    | use slot s and the own tile  | record consumed[s]
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "device/hazard_checker.h"
#include "device/sim/sim_device.h"
#include "fabric/sim/sim_fabric.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::fabric {
namespace {

using device::CopyKind;
using device::EventEngine;
using device::LinkSharing;
using runtime::TimeNs;
using runtime::VirtualRuntime;

constexpr int kRanks = 8, kLayers = 6, kSteps = 3, kSlots = 2;
constexpr uint64_t kTileBytes = 64 << 20;           // a layer: 512 MiB; nobody has this memory
constexpr double kLinkBytesPerS = 64e9 * 1.048576;  // a tile in 1 ms

struct Case {
  uint64_t seed = 1;
  TimeNs kernel_ns = 0;
  LinkSharing sharing = LinkSharing::kFair;
  bool consumed_too_early = false;  // recorded before the kernel that reads the slot is enqueued
  PeerOrder order = PeerOrder::kRotated;
  uint64_t slice_bytes = 8 << 20;
};

struct Outcome {
  base::Status status, hazard;
  TimeNs end = 0;
  uint64_t bytes_pulled = 0, device_trace = 0, task_trace = 0;
};

class Rank {
 public:
  Rank(EventEngine& engine, std::unique_ptr<Fabric> fabric, const Case& setting)
      : setting_(setting), fabric_(std::move(fabric)) {
    device_ = device::CreateSimDevice(engine, {.rank = fabric_->rank(),
                                               .memory_bytes = (kLayers + kSlots * kRanks + 1) * kTileBytes,
                                               .price = [&](const cost::OpDesc&) {
                                                 const auto ns = static_cast<double>(setting.kernel_ns);
                                                 return device::SimPrice{.seconds = 1e-9 * ns};
                                               },
                                               .node = {.egress_bytes_per_s = kLinkBytesPerS,
                                                        .ingress_bytes_per_s = kLinkBytesPerS,
                                                        .request_latency_s = 0,
                                                        .copy_memory_weight = 0}});
    weights_ = device_->arena().Allocate("weights", kLayers * kTileBytes).value();
    slots_ = device_->arena().Allocate("slots", kSlots * kRanks * kTileBytes).value();
    FB_CHECK(fabric_->Publish(*weights_).ok(), "publish");
    for (int slot = 0; slot < kSlots; ++slot) {
      ready_.push_back(device_->NewEvent());
      consumed_.push_back(device_->NewEvent());
    }
    for (int layer = 0; layer < kLayers; ++layer) plans_.push_back(PlanOf(layer));
  }

  void RunSteps() {
    for (int step = 0; step < kSteps; ++step) {
      for (int layer = 0; layer < kLayers; ++layer) RunLayer(layer);
      FB_CHECK(device_->Synchronize(device_->compute()).ok(), "no faults here");
    }
  }

  uint64_t bytes_pulled() const { return fabric_->bytes_pulled(); }

 private:
  std::byte* Slot(int slot) const { return slots_->data + slot * kRanks * kTileBytes; }

  CopyPlan PlanOf(int layer) const {
    CopyPlan plan{.slice_bytes = setting_.slice_bytes, .order = setting_.order};
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == fabric_->rank()) continue;
      std::byte* const destination = Slot(layer % kSlots) + peer * kTileBytes;
      plan.spans.push_back({peer, weights_->id, layer * kTileBytes, kTileBytes, destination});
    }
    return plan;
  }

  void RunLayer(int layer) {
    const int slot = layer % kSlots;
    device::Stream &copy = device_->copy(CopyKind::kWeights), &compute = device_->compute();
    copy.Wait(*consumed_[slot]);
    FB_CHECK(fabric_->Pull(copy, plans_[layer], {}, {}).ok(), "pull");
    copy.Record(*ready_[slot]);
    compute.Wait(*ready_[slot]);
    if (setting_.consumed_too_early) compute.Record(*consumed_[slot]);
    device::Operation kernel;
    kernel.desc = {.kind = cost::OpKind::kLinear, .label = "use"};
    kernel.Reads(Slot(slot), kRanks * kTileBytes).Reads(weights_->data + layer * kTileBytes, kTileBytes);
    compute.Enqueue(kernel);
    if (!setting_.consumed_too_early) compute.Record(*consumed_[slot]);
  }

  const Case& setting_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<device::Device> device_;
  const device::Region *weights_, *slots_;
  std::vector<std::unique_ptr<device::DeviceEvent>> ready_, consumed_;
  std::vector<CopyPlan> plans_;
};

Outcome RunProtocol(const Case& setting) {
  VirtualRuntime runtime(setting.seed);
  device::HazardChecker checker;
  Outcome outcome;
  outcome.status = runtime.Run([&] {
    EventEngine engine(runtime, setting.seed, setting.sharing);
    engine.set_checker(&checker);
    std::vector<std::unique_ptr<Rank>> ranks;
    for (auto& fabric : CreateSimFabric(engine, kRanks)) {
      ranks.push_back(std::make_unique<Rank>(engine, std::move(fabric), setting));
    }
    std::vector<std::unique_ptr<runtime::Task>> tasks;
    for (auto& rank : ranks) {
      tasks.push_back(runtime.Spawn({.name = "rank control"}, [&rank] { rank->RunSteps(); }));
    }
    for (auto& task : tasks) task->Join();
    outcome.end = runtime.Now();
    engine.links().CheckInvariants();
    for (const auto& rank : ranks) outcome.bytes_pulled += rank->bytes_pulled();
    outcome.device_trace = engine.trace_hash();
  });
  outcome.hazard = checker.status();
  outcome.task_trace = runtime.trace_hash();
  return outcome;
}

TEST(SimSlotProtocol, BoundByTheKernels) {
  const Outcome outcome = RunProtocol({.kernel_ns = 10'000'000});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_TRUE(outcome.hazard.ok()) << outcome.hazard.ToString();
  EXPECT_EQ(outcome.bytes_pulled, kSteps * kLayers * kRanks * 7 * kTileBytes);
  // A step begins cold: seven tiles of 1 ms, then the kernels, one behind the other.
  EXPECT_NEAR(static_cast<double>(outcome.end), kSteps * (7e6 + kLayers * 10e6), 1000);
}

TEST(SimSlotProtocol, BoundByTheLinks) {
  const Outcome outcome = RunProtocol({.kernel_ns = 3'000'000});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_TRUE(outcome.hazard.ok()) << outcome.hazard.ToString();
  // In rotation every ingress and every egress is full: the pulls one behind the other, then the last kernel.
  EXPECT_NEAR(static_cast<double>(outcome.end), kSteps * (kLayers * 7e6 + 3e6), 1000);
}

TEST(SimSlotProtocol, RightOnEverySeed) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (const LinkSharing sharing : {LinkSharing::kFair, LinkSharing::kFifo}) {
      const PeerOrder order = seed % 2 == 0 ? PeerOrder::kRotated : PeerOrder::kAsListed;
      const Case setting{
          .seed = seed, .kernel_ns = 5'000'000, .sharing = sharing, .order = order, .slice_bytes = 32 << 20};
      const Outcome outcome = RunProtocol(setting);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
      ASSERT_TRUE(outcome.hazard.ok()) << "seed " << seed << ": " << outcome.hazard.ToString();
      EXPECT_GE(outcome.end, static_cast<TimeNs>(kSteps * (kLayers * 7e6 + 5e6)) - 1000);
    }
  }
}

TEST(SimSlotProtocol, ConsumedBeforeTheKernelIsFoundAndReplayed) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Case setting{.seed = seed, .kernel_ns = 10'000'000, .consumed_too_early = true};
    const Outcome outcome = RunProtocol(setting);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.hazard.code(), device::kHazard);
    EXPECT_THAT(outcome.hazard.message(), testing::AllOf(testing::HasSubstr("'use' on rank"),
                                                         testing::HasSubstr("'pull' on rank")));
    const Outcome replayed = RunProtocol(setting);
    EXPECT_EQ(replayed.hazard.message(), outcome.hazard.message());
    EXPECT_EQ(replayed.device_trace, outcome.device_trace);
    EXPECT_EQ(replayed.task_trace, outcome.task_trace);
    EXPECT_EQ(replayed.end, outcome.end);
  }
}

}  // namespace
}  // namespace forebay::fabric
