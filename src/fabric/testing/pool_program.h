// The slot protocol on eight simulated ranks. A layer is eight tiles, one owned by each rank; every
// rank pulls the other seven, in rotation, into the layer's slot:
//
//   copy:     wait consumed[s] | pull seven tiles into slot s | record ready[s]
//   compute:  wait ready[s]    | use slot s and the own tile  | record consumed[s]
#pragma once

#include <memory>
#include <vector>

#include "device/hazard_checker.h"
#include "device/sim/sim_device.h"
#include "fabric/sim/sim_fabric.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::fabric {

inline constexpr int kPoolRanks = 8, kPoolSlots = 2;

struct PoolProgram {
  uint64_t seed = 1;
  int num_layers = 6, num_steps = 3;
  int kernels = 1;  // a layer; all read the slot
  runtime::TimeNs kernel_ns = 0;
  double kernel_spread = 0;  // kernels of rank r take 1 + r * this times as long
  uint64_t tile_bytes = 64 << 20;
  double link_bytes_per_s = 64e9 * 1.048576;  // a tile in 1 ms
  double request_latency_s = 0;
  double copy_memory_weight = 0;
  uint64_t slice_bytes = 8 << 20;
  PeerOrder order = PeerOrder::kRotated;
  device::LinkSharing sharing = device::LinkSharing::kFair;
  device::SimDetail detail = device::SimDetail::kJump;
  bool checked = true;              // by a HazardChecker
  bool consumed_too_early = false;  // recorded before the kernels that read the slot are enqueued
};

struct PoolOutcome {
  base::Status status, hazard;
  device::TimePs end = 0;
  uint64_t bytes_pulled = 0, device_trace = 0, task_trace = 0;
  int64_t num_events = 0;
};

class PoolRank {
 public:
  PoolRank(device::EventEngine& engine, std::unique_ptr<Fabric> fabric, const PoolProgram& program)
      : program_(program), fabric_(std::move(fabric)) {
    const double kernel_s = 1e-9 * static_cast<double>(program.kernel_ns) *
                            (1 + program.kernel_spread * fabric_->rank());
    device_ = device::CreateSimDevice(
        engine,
        {.rank = fabric_->rank(),
         .memory_bytes = (program.num_layers + kPoolSlots * kPoolRanks + 1) * program.tile_bytes,
         .price = [kernel_s](const cost::OpDesc&) { return device::SimPrice{.seconds = kernel_s}; },
         .detail = program.detail,
         .node = {.egress_bytes_per_s = program.link_bytes_per_s,
                  .ingress_bytes_per_s = program.link_bytes_per_s,
                  .request_latency_s = program.request_latency_s,
                  .contention = {.memory_bytes_per_s = 4.8e12 / program.copy_memory_weight}}});
    weights_ =
        device_->arena().Allocate("weights", program.num_layers * program.tile_bytes).value();
    slots_ =
        device_->arena().Allocate("slots", kPoolSlots * kPoolRanks * program.tile_bytes).value();
    FB_CHECK(fabric_->Publish(*weights_).ok(), "publish");
    for (int slot = 0; slot < kPoolSlots; ++slot) {
      ready_.push_back(device_->NewEvent());
      consumed_.push_back(device_->NewEvent());
    }
    for (int layer = 0; layer < program.num_layers; ++layer) plans_.push_back(PlanOf(layer));
  }

  void RunSteps() {
    for (int step = 0; step < program_.num_steps; ++step) {
      for (int layer = 0; layer < program_.num_layers;) {
        device_->compute().BeginRepeat(program_.num_layers - layer, 0);
        RunLayer(layer);
        layer += static_cast<int>(device_->compute().EndRepeat());
      }
      FB_CHECK(device_->Synchronize(device_->compute()).ok(), "no faults here");
    }
  }

  uint64_t bytes_pulled() const { return fabric_->bytes_pulled(); }

 private:
  std::byte* Slot(int slot) const { return slots_->data + slot * kPoolRanks * program_.tile_bytes; }

  CopyPlan PlanOf(int layer) const {
    CopyPlan plan{.slice_bytes = program_.slice_bytes, .order = program_.order};
    for (int peer = 0; peer < kPoolRanks; ++peer) {
      if (peer == fabric_->rank()) continue;
      std::byte* const destination = Slot(layer % kPoolSlots) + peer * program_.tile_bytes;
      plan.spans.push_back(
          {peer, weights_->id, layer * program_.tile_bytes, program_.tile_bytes, destination});
    }
    return plan;
  }

  void RunLayer(int layer) {
    const int slot = layer % kPoolSlots;
    device::Stream &copy = device_->copy(device::CopyKind::kWeights), &compute = device_->compute();
    copy.Wait(*consumed_[slot]);
    FB_CHECK(fabric_->Pull(copy, plans_[layer], {}, {}).ok(), "pull");
    copy.Record(*ready_[slot]);
    compute.Wait(*ready_[slot]);
    if (program_.consumed_too_early) compute.Record(*consumed_[slot]);
    device::Operation kernel;
    kernel.desc = {.kind = cost::OpKind::kLinear, .label = "use"};
    kernel.Reads(Slot(slot), kPoolRanks * program_.tile_bytes);
    kernel.Reads(weights_->data + layer * program_.tile_bytes, program_.tile_bytes);
    for (int i = 0; i < program_.kernels; ++i) compute.Enqueue(kernel);
    if (!program_.consumed_too_early) compute.Record(*consumed_[slot]);
  }

  const PoolProgram& program_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<device::Device> device_;
  const device::Region *weights_, *slots_;
  std::vector<std::unique_ptr<device::DeviceEvent>> ready_, consumed_;
  std::vector<CopyPlan> plans_;
};

inline PoolOutcome RunPoolProgram(const PoolProgram& program) {
  runtime::VirtualRuntime runtime(program.seed);
  device::HazardChecker checker;
  PoolOutcome outcome;
  outcome.status = runtime.Run([&] {
    device::EventEngine engine(runtime, program.seed, program.sharing);
    if (program.checked) engine.set_checker(&checker);
    std::vector<std::unique_ptr<PoolRank>> ranks;
    for (auto& fabric : CreateSimFabric(engine, kPoolRanks)) {
      ranks.push_back(std::make_unique<PoolRank>(engine, std::move(fabric), program));
    }
    std::vector<std::unique_ptr<runtime::Task>> tasks;
    for (auto& rank : ranks) {
      tasks.push_back(runtime.Spawn({.name = "rank control"}, [&rank] { rank->RunSteps(); }));
    }
    for (auto& task : tasks) task->Join();
    engine.links().CheckInvariants();
    outcome.end = engine.now();
    for (const auto& rank : ranks) outcome.bytes_pulled += rank->bytes_pulled();
    outcome.device_trace = engine.trace_hash();
    outcome.num_events = engine.num_events();
  });
  outcome.hazard = checker.status();
  outcome.task_trace = runtime.trace_hash();
  return outcome;
}

}  // namespace forebay::fabric
