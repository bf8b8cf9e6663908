#include "engine/machine.h"

#include <algorithm>
#include <charconv>

#include "base/units.h"
#include "cost/model.h"
#include "device/sim/sim_device.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::engine {
namespace {

constexpr uint64_t kLargeGpu = 70 * base::kGiB;
// Left to the machine when the budget is not given: a tenth, at least this.
constexpr uint64_t kLeastMargin = 512 * base::kMiB;
constexpr int kMostDevices = 1024;

base::Status Invalid(std::string_view text, std::string_view why) {
  return base::Status(kDevicesInvalid, fmt::format("--devices \"{}\": {}; expected cpu, 2xcpu, sim:h200 or sim:8xh200", text, why));
}

uint64_t FreeMemory(const runtime::Topology& topology) {
  const uint64_t margin = std::max(kLeastMargin, topology.available_memory / 10);
  return topology.available_memory > margin ? topology.available_memory - margin : 0;
}

uint64_t ScratchBytes(const model::ModelConfig& config, tensor::DType dtype, const kernels::KernelSet& kernels) {
  const kernels::KvLayout shape{dtype, static_cast<int32_t>(config.num_kv_heads), static_cast<int32_t>(config.head_dim), 0};
  return base::RoundUp(base::kMiB + kernels.attention_scratch(shape, static_cast<int32_t>(config.num_heads)), base::kMiB);
}

// What the user gave to a rank; 0: nothing was said.
uint64_t GivenBytes(const EngineOptions& options, int ranks) {
  return options.memory_per_rank_bytes ? options.memory_per_rank_bytes : options.memory_bytes / static_cast<uint64_t>(ranks);
}

// A CPU's ranks, real or simulated, share cores and memory evenly.
void PlanCpu(const EngineOptions& options, int cores, uint64_t memory, MachinePlan* plan) {
  const int ranks = plan->spec.count;
  plan->workers = std::max(1, (options.threads ? options.threads : cores) / ranks);
  const uint64_t given = GivenBytes(options, ranks);
  plan->budget_bytes = given ? given : memory / static_cast<uint64_t>(ranks);
  plan->device_bytes = plan->scratch_bytes * static_cast<uint64_t>(plan->workers) + 2 * base::kMiB;
  plan->max_num_seqs = 256;
  plan->max_num_batched_tokens = 512;
}

void PlanGpu(const EngineOptions& options, MachinePlan* plan) {
  const cost::DeviceProfile& profile = plan->profile;
  const auto memory = static_cast<uint64_t>(profile.memory_bytes);
  const uint64_t given = GivenBytes(options, plan->spec.count);
  plan->budget_bytes = given ? given : static_cast<uint64_t>(profile.memory_bytes * options.memory_utilization);
  plan->device_bytes = base::RoundUp(static_cast<uint64_t>(profile.runtime_bytes), 4 * base::kKiB);
  plan->max_num_seqs = memory >= kLargeGpu ? 1024 : 256;
  plan->max_num_batched_tokens = memory >= kLargeGpu ? 16384 : 8192;
}

device::SimNodeOptions NodeOf(const cost::DeviceProfile& profile, int workers) {
  device::SimNodeOptions node;
  node.egress_bytes_per_s = node.ingress_bytes_per_s = cost::PullRate(profile);
  node.from_host_bytes_per_s = node.to_host_bytes_per_s = cost::LinkRate(cost::Link::kHost, profile);
  node.request_latency_s = profile.link_latency_s;
  node.contention = cost::ContentionOf(profile, workers);
  return node;
}

device::SimPrice PriceOf(const cost::OpDesc& op, const cost::DeviceProfile& profile, cost::Calibration mode) {
  const cost::Work work = cost::WorkOf(op, profile, mode);
  return {.seconds = work.seconds,
          .memory_share = work.seconds > 0 ? work.memory_seconds / work.seconds : 0,
          .compute_bound = work.compute_seconds > 0};
}

base::Result<Machine> BuildSimulated(const MachinePlan& plan, const EngineOptions& options, int ranks_per_group,
                             runtime::Runtime& runtime) {
  FB_CHECK(runtime.is_virtual(), "simulated devices run in virtual time");
  Machine machine;
  machine.sim = std::make_unique<device::EventEngine>(static_cast<runtime::VirtualRuntime&>(runtime), options.seed);
  machine.sim->set_checker(options.checker);
  const auto mode = options.sim_uncalibrated ? cost::Calibration::kUncalibrated : cost::Calibration::kCalibrated;
  for (int rank = 0; rank < plan.spec.count; ++rank) {
    device::SimDeviceOptions device_options;
    device_options.rank = rank % ranks_per_group;
    device_options.memory_bytes = plan.budget_bytes;
    device_options.num_workers = plan.workers;
    device_options.price = [profile = plan.profile, mode](const cost::OpDesc& op) { return PriceOf(op, profile, mode); };
    device_options.node = NodeOf(plan.profile, plan.workers);
    device_options.profile = options.profile;
    device_options.detail = options.sim_full_detail ? device::SimDetail::kFull : device::SimDetail::kJump;
    machine.devices.push_back(device::CreateSimDevice(*machine.sim, std::move(device_options)));
    FB_RETURN_IF_ERROR(machine.devices.back()->arena().Allocate("device runtime", plan.device_bytes).status());
  }
  return machine;
}

base::Result<Machine> BuildCpu(const MachinePlan& plan, const EngineOptions& options, int ranks_per_group,
                             runtime::Runtime& runtime) {
  Machine machine;
  const std::vector<int>& cores = plan.topology.cores;
  const bool pinned = plan.workers * plan.spec.count <= static_cast<int>(cores.size());
  for (int rank = 0; rank < plan.spec.count; ++rank) {
    device::CpuDeviceOptions device_options;
    device_options.rank = rank % ranks_per_group;
    device_options.num_workers = plan.workers;
    if (pinned) device_options.cores.assign(cores.begin() + rank * plan.workers, cores.begin() + (rank + 1) * plan.workers);
    device_options.memory_bytes = plan.budget_bytes;
    device_options.scratch_bytes = plan.scratch_bytes;
    device_options.profile = options.profile;
    device_options.checker = options.checker;
    FB_ASSIGN_OR_RETURN(auto device, device::CreateCpuDevice(runtime, device_options));
    machine.devices.push_back(std::move(device));
  }
  return machine;
}

}  // namespace

base::Result<DevicesSpec> ParseDevices(std::string_view text) {
  DevicesSpec spec;
  std::string_view rest = text;
  if (rest.starts_with("sim:")) {
    spec.simulated = true;
    rest.remove_prefix(4);
  }
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits > 0 && digits < rest.size() && rest[digits] == 'x') {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + digits, spec.count);
    if (error != std::errc() || spec.count < 1 || spec.count > kMostDevices) {
      return Invalid(text, fmt::format("{} is no count of devices (1 to {})", rest.substr(0, digits), kMostDevices));
    }
    rest.remove_prefix(digits + 1);
  }
  spec.name = rest;
  if (rest.empty()) return Invalid(text, "no device is named");
  if (!spec.simulated && spec.name != "cpu") {
    return Invalid(text, fmt::format("this build has no device \"{}\"", rest));
  }
  return spec;
}

base::Result<MachinePlan> PlanMachine(const EngineOptions& options, const model::ModelConfig& config, tensor::DType dtype,
                                      const kernels::KernelSet& kernels) {
  MachinePlan plan;
  FB_ASSIGN_OR_RETURN(plan.spec, ParseDevices(options.devices));
  plan.scratch_bytes = ScratchBytes(config, dtype, kernels);
  if (!plan.spec.simulated) {
    plan.topology = runtime::ReadTopology();
    PlanCpu(options, plan.topology.usable_cores, FreeMemory(plan.topology), &plan);
    plan.stable_bytes = GivenBytes(options, plan.spec.count) ? 0 : plan.topology.total_memory / 2 / static_cast<uint64_t>(plan.spec.count);
  } else {
    FB_ASSIGN_OR_RETURN(plan.profile, cost::LoadProfile(plan.spec.name));
    if (plan.profile.kind == cost::DeviceKind::kCpu) {
      const double memory = plan.profile.memory_bytes * options.memory_utilization;
      PlanCpu(options, static_cast<int>(plan.profile.cores), static_cast<uint64_t>(memory), &plan);
    } else {
      PlanGpu(options, &plan);
    }
  }
  if (options.max_num_seqs > 0) plan.max_num_seqs = options.max_num_seqs;
  if (options.max_num_batched_tokens > 0) plan.max_num_batched_tokens = options.max_num_batched_tokens;
  return plan;
}

base::Result<Machine> BuildMachine(const MachinePlan& plan, const EngineOptions& options, int ranks_per_group,
                             runtime::Runtime& runtime) {
  return plan.spec.simulated ? BuildSimulated(plan, options, ranks_per_group, runtime)
                             : BuildCpu(plan, options, ranks_per_group, runtime);
}

}  // namespace forebay::engine
