#include <utility>

#include "cost/model.h"
#include "device/sim/event_engine.h"
#include "device/sim/sim_device.h"
#include "engine/backend/backend.h"
#include "fabric/sim/sim_fabric.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::engine {
namespace {

device::SimNodeOptions NodeOf(const cost::DeviceProfile& profile, int workers) {
  device::SimNodeOptions node;
  node.egress_bytes_per_s = node.ingress_bytes_per_s = cost::PullRate(profile);
  node.from_host_bytes_per_s = node.to_host_bytes_per_s = cost::HostRate(profile);
  node.one_link = cost::PeersBehindHost(profile);
  node.request_latency_s = profile.link_latency_s;
  node.contention = cost::ContentionOf(profile, workers);
  return node;
}

void SlowHostLink(double part, device::SimNodeOptions* node) {
  node->from_host_bytes_per_s *= part;
  node->to_host_bytes_per_s *= part;
  if (!node->one_link) return;
  node->ingress_bytes_per_s *= part;
  node->egress_bytes_per_s *= part;
}

device::SimPrice PriceOf(const cost::OpDesc& op, const cost::DeviceProfile& profile,
                         cost::Calibration mode) {
  const cost::Work work = cost::WorkOf(op, profile, mode);
  return {.seconds = work.seconds,
          .memory_share = work.seconds > 0 ? work.memory_seconds / work.seconds : 0,
          .compute_bound = work.compute_seconds > 0};
}

// Devices that know shapes alone and run in virtual time.
class SimBackend final : public Backend {
 public:
  SimBackend(runtime::VirtualRuntime& runtime, const layout::LayoutDraft& plan,
             const layout::EngineOptions& options)
      : engine_(runtime, options.seed,
                options.machine.source_queues ? device::LinkSharing::kFifo
                                              : device::LinkSharing::kFair),
        machine_(plan.machine),
        options_(options) {
    engine_.set_checker(options.trial.checker);
  }

  bool computes() const override { return false; }

  base::Result<Devices> MakeDevices(const layout::JobGroup& group) override {
    const layout::MachineOptions& asked = options_.machine;
    Devices devices;
    for (int rank = 0; rank < group.layout.ranks_per_group(); ++rank) {
      device::SimDeviceOptions device;
      device.rank = rank;
      device.memory_bytes = machine_.budget_bytes;
      device.num_workers = machine_.workers;
      device.price = [profile = machine_.profile, mode = asked.calibration()](
                         const cost::OpDesc& op) { return PriceOf(op, profile, mode); };
      device.node = NodeOf(machine_.profile, machine_.workers);
      SlowHostLink(options_.trial.host_link, &device.node);
      device.profile = options_.profile;
      device.profile_as_passed = options_.profile && asked.full_detail;
      device.detail = asked.full_detail ? device::SimDetail::kFull : device::SimDetail::kJump;
      devices.push_back(device::CreateSimDevice(engine_, std::move(device)));
      FB_RETURN_IF_ERROR(
          devices.back()->arena().Allocate("device runtime", machine_.device_bytes).status());
    }
    return devices;
  }

  std::unique_ptr<device::Counter> NewCounter(std::string) override {
    return device::CreateSimCounter(engine_);
  }
  Fabrics NewFabric(int num_ranks) override { return fabric::CreateSimFabric(engine_, num_ranks); }
  Fabrics NewPullFabric(int num_ranks) override { return fabric::CreateSimPullFabric(num_ranks); }
  std::string isa() const override { return machine_.spec.text; }
  std::string NumericsClass(const layout::LayoutDraft&) const override { return "simulated"; }

 private:
  device::EventEngine engine_;
  const layout::MachinePlan machine_;
  const layout::EngineOptions options_;
};

}  // namespace

std::unique_ptr<Backend> CreateSimBackend(runtime::Runtime& runtime,
                                          const layout::LayoutDraft& plan,
                                          const layout::EngineOptions& options) {
  FB_CHECK(runtime.is_virtual(), "simulated devices run in virtual time");
  return std::make_unique<SimBackend>(static_cast<runtime::VirtualRuntime&>(runtime), plan,
                                      options);
}

}  // namespace forebay::engine
