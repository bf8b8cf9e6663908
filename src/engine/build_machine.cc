#include "engine/build_machine.h"

#include "cost/model.h"
#include "device/sim/sim_device.h"
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

base::Result<Machine> BuildSimulated(const layout::MachinePlan& plan,
                                     const layout::EngineOptions& options,
                                     std::span<const layout::JobGroup> groups,
                                     runtime::Runtime& runtime) {
  FB_CHECK(runtime.is_virtual(), "simulated devices run in virtual time");
  Machine machine;
  machine.sim = std::make_unique<device::EventEngine>(
      static_cast<runtime::VirtualRuntime&>(runtime), options.seed);
  machine.sim->set_checker(options.trial.checker);
  const cost::Calibration mode = options.machine.calibration();
  for (const layout::JobGroup& group : groups) {
    auto& devices = machine.groups.emplace_back();
    for (int rank = 0; rank < group.layout.ranks_per_group(); ++rank) {
      device::SimDeviceOptions device_options;
      device_options.rank = rank;
      device_options.memory_bytes = plan.budget_bytes;
      device_options.num_workers = plan.workers;
      device_options.price = [profile = plan.profile, mode](const cost::OpDesc& op) {
        return PriceOf(op, profile, mode);
      };
      device_options.node = NodeOf(plan.profile, plan.workers);
      SlowHostLink(options.trial.host_link, &device_options.node);
      device_options.profile = options.profile;
      device_options.profile_as_passed = options.profile && options.machine.full_detail;
      device_options.detail =
          options.machine.full_detail ? device::SimDetail::kFull : device::SimDetail::kJump;
      devices.push_back(device::CreateSimDevice(*machine.sim, std::move(device_options)));
      FB_RETURN_IF_ERROR(
          devices.back()->arena().Allocate("device runtime", plan.device_bytes).status());
    }
  }
  return machine;
}

base::Result<Machine> BuildCpu(const layout::MachinePlan& plan,
                               const layout::EngineOptions& options,
                               std::span<const layout::JobGroup> groups,
                               runtime::Runtime& runtime) {
  Machine machine;
  const std::vector<int>& cores = plan.topology.cores;
  const bool pinned = plan.workers * plan.spec.count <= static_cast<int>(cores.size());
  for (const layout::JobGroup& group : groups) {
    auto& devices = machine.groups.emplace_back();
    for (int rank = 0; rank < group.layout.ranks_per_group(); ++rank) {
      device::CpuDeviceOptions device_options;
      device_options.rank = rank;
      device_options.num_workers = plan.workers;
      const auto first = cores.begin() + (group.first_device + rank) * plan.workers;
      if (pinned) device_options.cores.assign(first, first + plan.workers);
      device_options.memory_bytes = plan.budget_bytes;
      device_options.scratch_bytes = plan.scratch_bytes;
      device_options.profile = options.profile;
      device_options.checker = options.trial.checker;
      device_options.max_virtual_delay = options.trial.max_virtual_delay;
      device_options.seed = options.trial.delay_seed;
      FB_ASSIGN_OR_RETURN(auto device, device::CreateCpuDevice(runtime, device_options));
      devices.push_back(std::move(device));
    }
  }
  return machine;
}

}  // namespace

base::Result<Machine> BuildMachine(const layout::MachinePlan& plan,
                                   const layout::EngineOptions& options,
                                   std::span<const layout::JobGroup> groups,
                                   runtime::Runtime& runtime) {
  return plan.spec.simulated ? BuildSimulated(plan, options, groups, runtime)
                             : BuildCpu(plan, options, groups, runtime);
}

}  // namespace forebay::engine
